r"""How fast does the error of kernel ridge regression fall with more bags, and with larger bags?

The distributions are normal, :math:`P_u = N((u, 0), I / 16)` with :math:`u` uniform on [0, 1]. The
target :math:`f(P_u) = |2u - 1| - 1/2` is observed with noise of standard deviation 0.1. The kernel
is :math:`\exp(-d / \ell)`, where the distance ``d`` is ``sw2``, sliced Wasserstein of order two, or
``mmd`` with a Gaussian kernel of bandwidth 1/2, and ``l`` is half the distance between :math:`P_0`
and :math:`P_1`. Errors are root mean squared errors about ``f`` at 500 new bags, means over seeds.
They are reported for the best of 33 ridges: the one with the smallest error about ``f`` at 500
further bags.

- ``in T``, the number of training bags, when bags are so large that they equal their distributions:
  here the kernel compares the normal distributions themselves;
- ``in n``, the number of points per bag, in training and prediction, at T = 1000.

Columns: the ``sizes``, the errors ``e1``, ``e2``, ... at each size, the least squares ``slope`` of
log error against log size, and two slopes that are proven: ``proven``, which uses the smoothness of
this target, and ``corollary_9`` of Meunier, Pontil and Ciliberto 2022, which does not. Both are upper
bounds.

The proven rates rest on known smoothness. On these distributions, SW2 is :math:`|u - u'| / \sqrt 2`, and
MMD is a smooth function of :math:`|u - u'|` with a positive slope at 0. So both kernels have the kink of
:math:`\exp(-|u - u'|)` at 0: their function space is the Sobolev space :math:`H^1(0, 1)`, and their
eigenvalues decay as :math:`k^{-b}` with b = 2. The target ``f`` has a kink, so it is in :math:`H^c` for
all c < 3/2. For this class P(b, c), the excess risk, a squared error, decreases at the minimax rate
:math:`T^{-bc/(bc+1)} = T^{-3/4}` if bags are large enough (Caponnetto and De Vito 2007; with mean
embeddings of bags Szabo et al. 2015, consequences 1 and 2 and row 5 of Table 2), so the slope is -3/8.
At a fixed ridge, bags of ``n`` points add the squared distance in feature space between a bag and its
distribution, :math:`2 (1 - e^{-d / \ell}) \le 2 d / \ell`: the kernel is Hoelder continuous with
exponent h = 1/2. For MMD, :math:`\mathrm E\, d^2 \le 1 / n`, so this term decreases as :math:`n^{-h}`
(Szabo et al. 2015). The same holds for SW2 up to a logarithm, because :math:`\mathrm E\, SW_2^2` between
normal samples and their distribution decreases as :math:`\log\log n / n`. The slope of the error is
therefore -1/4.

Meunier, Pontil and Ciliberto 2022, corollary 9, bound the root of the excess risk by a multiple of
:math:`T^{-1/4} + n^{-h \beta / 4}`, where h is the Hoelder exponent of the kernel and
:math:`\mathrm E\, d^2 \le c\, n^{-\beta}`. Here h = 1/2. For MMD, :math:`\beta = 1`, so the slope is
-1/8. For SW2 of any distributions, :math:`\beta = 1/2` and the slope is -1/16; on these normal ones,
:math:`\beta = 1` would give -1/8. The rates under ``proven`` hold for ridge regression in every Hilbert
space, so they hold for ``sw2`` as well.

``figures/learning_curves.png`` shows the curves.

Rows ``proposition 21`` of Meunier, Pontil and Ciliberto 2022 have the mean squared MMD between
:math:`P_0` and a bag of ``n`` of its points: ``measured`` over 4000 bags, with its ``standard_error``,
and ``exact``, :math:`(1 - \mathrm E\, k(X, X')) / n` for independent points :math:`X, X'`.

    python -m benchmarks.papers.learning_curves [--quick] [--seeds 5]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, drawing, main, means, progress
from gp_distributions import MMD, GaussianMixtures, Gaussians, PointClouds, SlicedWasserstein
from gp_distributions.distances import Distance

SPREAD, NOISE = 0.25, 0.1
VALIDATION, TEST = 500, 500
RIDGES = torch.logspace(-8, 0, 33).double()
DISTANCES: dict[str, Callable[[str], Distance]] = {
    "sw2": lambda inputs: SlicedWasserstein(2, inputs=inputs, num_slices=50, num_quantiles=50),
    "mmd": lambda inputs: MMD(2, inputs=inputs, bandwidth=0.5, num_features=200),
}


@dataclass(frozen=True)
class Curve:
    """Errors for several sizes: of ``T`` if ``points`` is ``None``, else of ``n`` for ``T`` bags."""

    name: str
    proven: float
    corollary_9: tuple[float, float]  # by distance
    sizes: Sequence[int]
    clouds: int | None = None


CURVES = (
    Curve("in T", -3 / 8, (-1 / 4, -1 / 4), (50, 100, 200, 400, 800, 1600)),
    Curve("in n", -1 / 4, (-1 / 16, -1 / 8), (10, 20, 40, 80, 160, 320), clouds=1000),
)
QUICK = (replace(CURVES[0], sizes=(20, 40)), replace(CURVES[1], sizes=(10, 20), clouds=40))


def target(u: Tensor) -> Tensor:
    """A function with one kink."""
    return (2 * u - 1).abs() - 0.5


def distributions(u: Tensor, points: int | None, draws: Draws) -> Tensor:
    """Rows of normal distributions with means ``(u, 0)``, or of samples from them."""
    centres = torch.stack([u, torch.zeros_like(u)], dim=-1)
    if points is None:
        covariance = SPREAD**2 * torch.eye(2, dtype=u.dtype)
        return Gaussians(centres, covariance.expand(len(u), 2, 2)).pack()
    return PointClouds(centres.unsqueeze(-2) + SPREAD * draws.normal(len(u), points, 2)).pack()


def errors(clouds: int, points: int | None, seed: int) -> dict[str, float]:
    """Error of ridge regression with each distance."""
    draws, known = Draws(seed), clouds + VALIDATION
    u = draws.uniform(known + TEST)
    truth = target(u)
    targets = truth[:clouds] + NOISE * draws.normal(clouds)
    rows = distributions(u, points, draws)
    ends = distributions(torch.tensor([0.0, 1.0]).double(), None, draws)
    found = {}
    for name, make in DISTANCES.items():
        lengthscale = make("gaussians").squared(ends)[0, 1].sqrt() / 2
        distance = make("gaussians" if points is None else "clouds")
        covariance = torch.exp(-distance.squared(rows, rows[:clouds]).sqrt() / lengthscale)
        values, vectors = torch.linalg.eigh(covariance[:clouds])
        weights = (vectors.T @ targets) / (values + clouds * RIDGES.unsqueeze(-1))
        squares = (weights @ (covariance[clouds:] @ vectors).T - truth[clouds:]).square()
        best = squares[squares[:, :VALIDATION].mean(-1).argmin(), VALIDATION:]
        found[name] = float(best.mean().sqrt())
    return found


def proposition_21(sizes: Sequence[int], bags: int) -> list[Row]:
    """Return one row per size of bags."""
    draws, rows = Draws(0), []
    distance = MMD(2, inputs="mixtures", bandwidth=0.5)
    centre, covariance = torch.zeros(1, 1, 2).double(), SPREAD**2 * torch.eye(2).double()
    normal = GaussianMixtures(centre, covariance.expand(1, 1, 2, 2))
    inner = 0.5**2 / (0.5**2 + 2 * SPREAD**2)  # E k(X, X') in two dimensions
    for n in sizes:
        points = SPREAD * draws.normal(bags, n, 2)
        sampled = GaussianMixtures(points, 0 * covariance.expand(bags, n, 2, 2))
        squared = distance.squared(normal.pack(), sampled.pack()).flatten()
        row: Row = {"proposition 21": f"n = {n}", "measured": float(squared.mean())}
        row |= {"standard_error": float(squared.std()) / bags**0.5, "exact": (1 - inner) / n}
        rows.append(row)
    return rows


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Least squares slope of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def save_curves(
    curves: Sequence[Curve], found: dict[tuple[str, str], list[float]], options: Options
) -> None:
    """Draw the errors of every curve with the proven slopes."""
    with drawing("learning_curves", options, len(curves), figsize=(9, 3.6)) as axes:
        for axis, curve in zip(axes, curves, strict=True):
            for name, marker in zip(DISTANCES, "os", strict=True):
                axis.loglog(curve.sizes, found[name, curve.name], marker=marker, label=name)
            top = 1.3 * max(found[name, curve.name][0] for name in DISTANCES)
            growth = np.array(curve.sizes) / curve.sizes[0]
            for rate, line, source in (
                (curve.proven, "k--", "proven"),
                (curve.corollary_9[0], "k:", "corollary 9 for sw2"),
            ):
                axis.loglog(
                    curve.sizes, top * growth**rate, line, label=f"slope {rate:g}, {source}"
                )
            symbol = curve.name.removeprefix("in ")
            axis.set(xlabel={"T": "T, training bags", "n": "n, points of a bag"}[symbol])
            axis.legend()
        axes[0].set(ylabel="root mean squared error")


def run(options: Options) -> list[Row]:
    """Return one row per distance and curve."""
    curves = QUICK if options.quick else CURVES
    found: dict[tuple[str, str], list[float]] = {}
    for curve in curves:
        for size in progress(curve.sizes, curve.name):
            clouds, points = curve.clouds or size, size if curve.clouds else None
            each = [errors(clouds, points, seed) for seed in range(options.seeds)]
            for name, value in means(each).items():
                found.setdefault((name, curve.name), []).append(value)
    if not options.quick:
        save_curves(curves, found, options)
    rows: list[Row] = [
        {
            "curve": f"{name} {curve.name}",
            "sizes": ", ".join(map(str, curve.sizes)),
            **{f"e{i}": value for i, value in enumerate(found[name, curve.name], start=1)},
            "slope": slope(curve.sizes, found[name, curve.name]),
            "proven": curve.proven,
            "corollary_9": rate,
        }
        for curve in curves
        for name, rate in zip(DISTANCES, curve.corollary_9, strict=True)
    ]
    return rows + proposition_21((10,) if options.quick else (10, 40, 160), 4000)


if __name__ == "__main__":
    main(run)
