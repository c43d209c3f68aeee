"""Where do distances and predictions lose digits?

Each figure is the number of correct digits of results: minus the decimal logarithm of the largest
relative error over all pairs of three clouds, against a computation with 40 digits from the formulas
(``exact``). Next to it stands how many digits the data determine: how far the exact
results move if each number of the data is changed by its own rounding error. What is missing between
the two is lost by the computation.

Columns: ``double`` and ``single``, the digits in either precision; ``double_data`` and ``single_data``,
the digits that data in this precision determine; ``lost``, the digits lost in double precision.

- offset: clouds of spread one, so far from the origin;
- scale: clouds and bandwidths multiplied by a number;
- near: two clouds whose atoms differ by so much, beside a third one, for a spread of one;
- atoms: number of atoms;
- epsilon: of entropic transport, for a spread of one;
- flat: ratio of the standard deviations of Gaussians;
- noise: noise variance of models whose outputscale is one, with a lengthscale of three times the largest
  distance, so that covariance matrices are nearly singular.

    python -m benchmarks.numerics.correct_digits [--quick]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import gpytorch
import numpy as np
import torch
from mpmath import mp
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, Value, main
from benchmarks.judging import Judge, Rows, Target, number
from benchmarks.numerics import exact
from gp_distributions.distances import ChiSquared, Distance

DIGITS = 40
SLICES, CELLS = 5, 6
FREQUENCIES = ((1.0, 0.0), (0.5, -1.0), (2.0, 1.5))
REFERENCE = ((-1.0, -1.0), (1.0, -0.5), (0.0, 1.25), (0.5, 0.25))
# Numbers of atoms beside eight, where the time is not quadratic in them.
MANY = {"SW1": (100, 1000), "SW2": (100, 1000), "Fourier": (100, 1000)}

Array = np.ndarray[Any, np.dtype[np.float64]]
Results = list[Any]  # of mpmath


@dataclass(frozen=True)
class Quantity:
    """Results of the package, and their exact values.

    Attributes:
        name: Name of the quantity.
        ours: Function of the data as tensors that returns a tensor of results.
        exact: Function of the data as numbers of mpmath that returns the results.
    """

    name: str
    ours: Callable[..., Tensor]
    exact: Callable[..., Results]


@dataclass(frozen=True)
class Case:
    """A difficulty, and data that have it.

    Attributes:
        name: Name of the case.
        data: Arrays, the arguments of a quantity; results may depend on their rounding errors.
        fixed: Numbers that both sides take beside them.
    """

    name: str
    data: tuple[Array, ...]
    fixed: dict[str, float]


def exactly(array: Any) -> Any:
    """Convert nested numbers into numbers of mpmath."""
    if isinstance(array, np.ndarray | list | tuple):
        return [exactly(part) for part in array]
    return mp.mpf(float(array))


def pairs(distance: Callable[[Any, Any], Any], items: Sequence[Any]) -> Results:
    """Evaluate an exact distance for all pairs."""
    return [distance(one, other) for one, other in combinations(items, 2)]


def measured(distance: Distance, rows: Tensor) -> Tensor:
    """Evaluate a distance of the package for all pairs, as one set and as two."""
    inside = distance.squared(rows)
    distance.clear_cache()
    across = distance.squared(rows, rows.flip(-2)).flip(-1)
    upper = torch.triu_indices(len(rows), len(rows), offset=1).unbind()
    return torch.stack([inside[upper], across[upper]])


def of_clouds(
    name: str,
    distance: Callable[..., Distance],
    formula: Callable[..., Any],
    settings: Callable[..., dict[str, Any]] = lambda **fixed: {},
) -> Quantity:
    """Return a quantity of clouds; ``settings`` are those of the formula for what is fixed."""

    def ours(points: Tensor, weights: Tensor, **fixed: float) -> Tensor:
        total = weights.sum(-1, keepdim=True)
        rows = torch.cat([points, (weights / total).unsqueeze(-1)], dim=-1).flatten(-2)
        return measured(distance(**fixed), rows)

    def reference(points: Any, weights: Any, **fixed: float) -> Results:
        clouds = [
            (cloud, [w / mp.fsum(shares) for w in shares])
            for cloud, shares in zip(points, weights, strict=True)
        ]
        return pairs(partial(formula, **settings(**fixed)), clouds)

    return Quantity(name, ours, reference)


def sliced(p: int, number: int | None) -> Callable[..., Distance]:
    """Return a function of what is fixed that makes a sliced Wasserstein distance."""
    return lambda **fixed: gd.SlicedWasserstein(2, p=p, num_slices=SLICES, num_quantiles=number)


def embedded(kernel: str) -> Callable[..., Distance]:
    """Return a function of what is fixed that makes an MMD."""
    if kernel == "energy":
        return lambda **fixed: gd.MMD(2, kernel=kernel)
    return lambda scale=1.0, **fixed: gd.MMD(2, kernel=kernel, bandwidth=scale)


def in_units(function: Callable[[Any], Any]) -> Callable[..., dict[str, Any]]:
    """Return the settings of a function of squared distances in units of the bandwidth."""
    return lambda scale=1.0, **fixed: {"kernel": lambda s: function(s / mp.mpf(scale) ** 2)}


def transport(*, scale: float = 1.0, epsilon: float = 0.5, **fixed: float) -> Distance:
    """Make a distance between potentials."""
    reference = gd.ReferenceMeasure(scale * torch.tensor(REFERENCE, dtype=torch.float64))
    return gd.SinkhornPotential(reference, epsilon=epsilon * scale**2)


CLOUDS = (
    *(
        of_clouds(
            f"SW{p}{', exact' if number is None else ''}",
            sliced(p, number),
            exact.sliced,
            lambda atoms=8, p=p, number=number, **fixed: {
                "p": p,
                "slices": SLICES,
                "number": int(number or atoms),
            },
        )
        for p in (1, 2)
        for number in (CELLS, None)
    ),
    of_clouds(
        "rigid",
        lambda **fixed: gd.RigidSlicedWasserstein(
            2, num_slices=2 * SLICES, num_quantiles=CELLS, max_degree=3
        ),
        exact.rigid,
        lambda **fixed: {"slices": 2 * SLICES, "number": CELLS, "degrees": 3},
    ),
    of_clouds(
        "MMD, gaussian",
        embedded("gaussian"),
        exact.embedding,
        in_units(lambda s: mp.exp(-s / 2)),
    ),
    of_clouds(
        "MMD, laplace",
        embedded("laplace"),
        exact.embedding,
        in_units(lambda s: mp.exp(-mp.sqrt(s))),
    ),
    of_clouds(
        "energy distance",
        embedded("energy"),
        exact.embedding,
        lambda **fixed: {"kernel": lambda s: -mp.sqrt(s)},
    ),
    of_clouds(
        "Fourier",
        lambda scale=1.0, **fixed: gd.Fourier(
            2, frequencies=[[f / scale for f in row] for row in FREQUENCIES]
        ),
        exact.characteristic,
        lambda scale=1.0, **fixed: {"frequencies": exactly(np.array(FREQUENCIES) / scale)},
    ),
    of_clouds(
        "Sinkhorn potentials",
        transport,
        exact.potential,
        lambda scale=1.0, epsilon=0.5, **fixed: {
            "reference": exactly(scale * np.array(REFERENCE)),
            "epsilon": mp.mpf(epsilon * scale**2),
        },
    ),
)


def of_weights(name: str, kind: type[Any], formula: Callable[..., Any]) -> Quantity:
    """Return a quantity of weights on a shared support."""

    def ours(weights: Tensor) -> Tensor:
        support = torch.arange(weights.shape[-1], dtype=weights.dtype).unsqueeze(-1)
        total = weights.sum(-1, keepdim=True)
        columns = [support.expand(len(weights), -1, 1), (weights / total).unsqueeze(-1)]
        return measured(kind(1, support=support), torch.cat(columns, dim=-1).flatten(-2))

    def reference(weights: Any) -> Results:
        return pairs(formula, [[w / mp.fsum(cloud) for w in cloud] for cloud in weights])

    return Quantity(name, ours, reference)


WEIGHTS = (
    of_weights("Hellinger", gd.Hellinger, exact.hellinger),
    of_weights("total variation", gd.TotalVariation, exact.total_variation),
    of_weights("chi-squared", ChiSquared, exact.chi_squared),
)


def of_gaussians(p: int) -> Quantity:
    """Return the sliced Wasserstein distance between Gaussians."""

    def ours(means: Tensor, covariances: Tensor) -> Tensor:
        rows = gd.Gaussians(means, covariances).pack()
        return measured(gd.SlicedWasserstein(2, p=p, num_slices=SLICES, inputs="gaussians"), rows)

    def reference(means: Any, covariances: Any) -> Results:
        normals = list(zip(means, covariances, strict=True))
        return pairs(partial(exact.sliced_normals, p=p, slices=SLICES), normals)

    return Quantity(f"SW{p}, Gaussians", ours, reference)


GAUSSIANS = (of_gaussians(1), of_gaussians(2))


def model_of(means: Tensor, targets: Tensor, *, noise: float) -> gd.DistributionGP:
    """Return a model of clouds of two atoms, by SW2 with the profile Matern 5/2."""
    clouds = gd.PointClouds(torch.stack([means - 0.5, means + 0.5], dim=-2))
    distance = gd.SlicedWasserstein(2, num_slices=SLICES, num_quantiles=None)
    kernel = gd.DistributionKernel(distance).to(means)
    kernel.lengthscale = LENGTHSCALE
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-16)
    ).to(means)
    likelihood.noise = noise
    mean = gpytorch.means.ZeroMean()
    return gd.DistributionGP(
        clouds, targets, kernel, likelihood=likelihood, mean_module=mean, outcome_transform=None
    )


LENGTHSCALE = 6.0


def covariance_of(means: Any) -> Any:
    """Return the exact covariance matrix of :func:`model_of`, without noise.

    Clouds that differ by a translation have the squared distance ``|translation|^2 / 2``.
    """
    size = len(means)
    scale = 2 * mp.mpf(LENGTHSCALE) ** 2  # single precision keeps so small an integer
    return mp.matrix(
        [
            [exact.matern52(exact.squares(means[i], means[j]) / scale) for j in range(size)]
            for i in range(size)
        ]
    )


def likelihood_of(means: Tensor, targets: Tensor, *, noise: float) -> Tensor:
    """Return the log marginal likelihood of a model."""
    model = model_of(means, targets, noise=noise).train()
    inputs = model.train_inputs
    density: Tensor = model.likelihood(model(*inputs)).log_prob(model.train_targets)
    return density.detach().reshape(1)


def noise_of(data: Sequence[Tensor], noise: float) -> float:
    """Return the noise that a model has, after the transform of the parameter."""
    found: float = model_of(data[0], data[1], noise=noise).likelihood.noise.item()
    return found


def exact_model(means: Any, targets: Any, *, noise: float) -> tuple[Any, Any]:
    """Return the exact covariance matrix of noisy targets, and the targets."""
    covariance = covariance_of(means)
    for i in range(len(means)):
        covariance[i, i] += mp.mpf(noise)
    return covariance, targets


def left_out_of(means: Tensor, targets: Tensor, *, noise: float) -> Tensor:
    """Return leave-one-out means and variances."""
    mean, std = model_of(means, targets, noise=noise).leave_one_out()
    return torch.cat([torch.as_tensor(mean).flatten(), torch.as_tensor(std).flatten().square()])


def factor_of(means: Tensor, targets: Tensor, *, noise: float) -> Tensor:
    """Return the Cholesky factor of the covariance matrix of noisy targets."""
    model = model_of(means, targets, noise=noise)
    covariance = model.covar_module(*model.train_inputs).to_dense().detach()
    diagonal = model.likelihood.noise.expand(len(means)).to(covariance)
    return torch.linalg.cholesky(covariance + torch.diag(diagonal)).flatten()


def exact_left_out(means: Any, targets: Any, *, noise: float) -> Results:
    """Return exact leave-one-out means and variances."""
    found = exact.left_out(*exact_model(means, targets, noise=noise))
    return [*found[0], *found[1]]


MODELS = (
    Quantity(
        "Cholesky factor",
        factor_of,
        lambda means, targets, noise: list(
            mp.cholesky(exact_model(means, targets, noise=noise)[0])
        ),
    ),
    Quantity(
        "log marginal likelihood",
        likelihood_of,
        lambda means, targets, noise: [
            exact.log_likelihood(*exact_model(means, targets, noise=noise))
        ],
    ),
    Quantity("leave-one-out", left_out_of, exact_left_out),
)


def clouds(atoms: int = 8, *, near: float = 1.0, seed: int = 0) -> Array:
    """Draw three clouds of spread one; the atoms of the first two differ by ``near``."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(1, atoms, 2))
    apart = np.array([near, near, 1.0])[:, None, None]
    return np.asarray(first + apart * rng.normal(size=(3, atoms, 2)))


def weights(atoms: int = 8, *, equal: bool, seed: int = 1) -> Array:
    """Return equal or random weights, the same for three clouds."""
    one = np.ones(atoms) if equal else np.random.default_rng(seed).random(atoms) + 0.1
    return np.tile(one, (3, 1))


def cloud_cases(name: str, quick: bool, single: bool) -> Iterator[Case]:
    """Yield the cases of a quantity of clouds."""
    equal = name.endswith("exact")
    shares = weights(equal=equal)
    for power in (8,) if quick else (0, 2, 4, 6, 8):
        yield Case(f"offset 1e{power}", (clouds() + (10.0**power if power else 0), shares), {})
    most = 15 if single else 150
    if name.startswith("Sinkhorn"):
        most //= 2  # squared distances between potentials are fourth powers of lengths
    for power in () if quick else (-most, most):
        scale = 10.0**power
        yield Case(f"scale 1e{power}", (scale * clouds(), shares), {"scale": scale})
    for power in (-6,) if quick else (-3, -6, -9):
        yield Case(f"near 1e{power}", (clouds(near=10.0**power), shares), {})
    for atoms in () if quick else MANY.get(name, (100,)):
        data = clouds(atoms), weights(atoms, equal=equal)
        yield Case(f"atoms {atoms}", data, {"atoms": atoms})
    if name.startswith("Sinkhorn"):
        for power in () if quick else (4, 2, -1, -2, -3):
            yield Case(f"epsilon 1e{power}", (clouds(), shares), {"epsilon": 10.0**power})


def weight_cases(quick: bool) -> Iterator[Case]:
    """Yield the cases of a quantity of weights."""
    rng = np.random.default_rng(2)
    for power in (-6,) if quick else (0, -3, -6, -9):
        yield Case(f"near 1e{power}", (1 + 10.0**power * rng.random((3, 8)),), {})
    for power in () if quick else (-10, -100):
        small = rng.random((3, 8)) * 10.0 ** (power * (np.arange(8) > 3))
        yield Case(f"weights 1e{power}", (small,), {})
    for atoms in () if quick else (1000,):
        yield Case(f"atoms {atoms}", (rng.random((3, atoms)),), {})


def gaussian_cases(quick: bool, single: bool) -> Iterator[Case]:
    """Yield the cases of a quantity of Gaussians."""
    rng = np.random.default_rng(3)
    means, turn = rng.normal(size=(3, 2)), rng.normal(size=(3, 2, 2))
    wide = turn @ turn.transpose(0, 2, 1)
    wide = (wide + wide.transpose(0, 2, 1)) / 2
    for power in (8,) if quick else (0, 4, 8):
        yield Case(f"offset 1e{power}", (means + (10.0**power if power else 0), wide), {})
    most = 15 if single else 150
    for power in () if quick else (-most, most):
        scale = 10.0 ** (power // 2)
        yield Case(f"scale 1e{power // 2}", (scale * means, scale**2 * wide), {})
    for power in () if quick else (-3, -6):
        shift, stretch = means * 10.0**power, wide * 10.0**power
        yield Case(f"near 1e{power}", (shift, np.eye(2) + stretch), {})
    for power in (-6,) if quick else (-2, -4, -6, -8):
        axes = np.linalg.qr(turn)[0]
        flat = axes @ (np.array([1.0, 10.0 ** (2 * power)])[:, None] * axes.transpose(0, 2, 1))
        yield Case(f"flat 1e{power}", (means, (flat + flat.transpose(0, 2, 1)) / 2), {})


def model_cases(quick: bool, single: bool) -> Iterator[Case]:
    """Yield the cases of a model."""
    rng = np.random.default_rng(4)
    means = rng.normal(size=(8, 2))
    targets = np.sin(means.sum(-1))
    for power in (-4,) if quick else (-1, -2, -3, -4) if single else (-2, -4, -6, -8):
        data = means, targets
        yield Case(f"noise 1e{power}", data, {"noise": 10.0**power})


def digits(ours: Sequence[Any], reference: Results, norm: bool) -> float:
    """Return the number of digits in which results agree: each, or all relative to the largest."""
    errors = [abs(a - b) for a, b in zip(ours, reference, strict=True)]
    sizes = [max(map(abs, reference))] * len(reference) if norm else list(map(abs, reference))
    worst = max((e / s if s else mp.mpf(bool(e)) for e, s in zip(errors, sizes, strict=True)))
    return 40.0 if not worst else float(-mp.log10(worst)) if mp.isfinite(worst) else 0.0


def assess(quantity: Quantity, case: Case, dtype: torch.dtype) -> tuple[float, float]:
    """Return the correct digits of results, and those that the data determine."""
    data = [torch.tensor(array).to(dtype) for array in case.data]
    numbers = [tensor.double().numpy() for tensor in data]
    fixed = dict(case.fixed)
    norm = quantity.name == "Cholesky factor"
    with torch.no_grad(), mp.workdps(DIGITS):
        found = quantity.ours(*data, **fixed)
        if "noise" in fixed:
            fixed["noise"] = noise_of(data, fixed["noise"])
        reference = quantity.exact(*map(exactly, numbers), **fixed)
        rng = np.random.default_rng(5)
        eps = torch.finfo(dtype).eps / 2
        signs = [rng.choice([-1, 1], size=array.shape) for array in numbers]
        signs = [s if s.ndim < 3 or s.shape[-1] != s.shape[-2] else _symmetric(s) for s in signs]
        moved = [
            exactly(array) if array.ndim == 0 else _moved(array, sign, eps)
            for array, sign in zip(numbers, signs, strict=True)
        ]
        again = quantity.exact(*moved, **fixed)
        count = len(reference)
        groups = [exactly(row) for row in found.double().reshape(-1, count).numpy()]
        ours = min(digits(group, reference, norm) for group in groups)
        return ours, digits(again, reference, norm)


def _symmetric(signs: Any) -> Any:
    return np.triu(signs) + np.triu(signs, 1).swapaxes(-1, -2)


def _moved(array: Any, signs: Any, eps: float) -> Any:
    """Move each number by its rounding error, in arbitrary precision."""
    if array.ndim:
        return [_moved(a, s, eps) for a, s in zip(array, signs, strict=True)]
    return mp.mpf(float(array)) * (1 + int(signs) * mp.mpf(eps))


def tasks(quick: bool, single: bool) -> Iterator[tuple[Quantity, Case]]:
    """Yield all quantities with their cases."""
    for quantity in CLOUDS:
        for case in cloud_cases(quantity.name, quick, single):
            yield quantity, case
    for quantity in WEIGHTS:
        for case in weight_cases(quick):
            yield quantity, case
    for quantity in GAUSSIANS:
        for case in gaussian_cases(quick, single):
            yield quantity, case
    for quantity in MODELS:
        for case in model_cases(quick, single):
            yield quantity, case


# Squared distances are then differences of sums of size one, or of potentials of the size of epsilon.
_SUBTRACTED = ("MMD, gaussian: near", "Sinkhorn potentials: epsilon 1e4")


def most_lost(most: float, *, models: bool) -> Judge:
    """Return a judge of the most digits lost in double precision by models, or by distances."""

    def judge(rows: Rows) -> tuple[str, bool]:
        # Some rows are in single precision only.
        known = [row for row in rows if row.get("lost") is not None]
        kept = [row for row in known if not str(row["name"]).startswith(_SUBTRACTED)]
        mine = [row for row in kept if (" noise " in str(row["name"])) == models]
        if not mine:
            raise LookupError("no rows")
        worst = max(mine, key=lambda row: number(row, "lost"))
        value = number(worst, "lost")
        return f"{value:.1f} ({worst['name']})", value <= most

    return judge


TARGETS = (
    Target(
        "digits lost by a distance, except MMD between close clouds and potentials at epsilon 1e4",
        "<= 2.5",
        most_lost(2.5, models=False),
        asked=True,
    ),
    Target(
        "digits lost by Cholesky factors, likelihoods and leave-one-out, noise of 1e-2 to 1e-8",
        "<= 5",
        most_lost(5, models=True),
        asked=True,
    ),
)


def run(options: Options) -> list[Row]:
    """Count correct digits of every quantity in every case, in both precisions."""
    rows: dict[str, dict[str, Value]] = {}
    columns = (("double", torch.float64), ("single", torch.float32))
    for column, dtype in columns[:1] if options.quick else columns:
        for quantity, case in tasks(options.quick, dtype == torch.float32):
            name = f"{quantity.name}: {case.name}"
            row = rows.setdefault(name, {"name": name})
            most = -math.log10(torch.finfo(dtype).eps / 2)
            ours, data = (min(value, most) for value in assess(quantity, case, dtype))
            row[column], row[f"{column}_data"] = round(ours, 1), round(data, 1)
            if column == "double":
                row["lost"] = round(max(0.0, data - ours), 1)
    return list(rows.values())


if __name__ == "__main__":
    main(run)
