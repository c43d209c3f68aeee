"""How does the cost grow with the sizes of a problem, and where does the time of a model go?

**Growth**: medians in milliseconds. One size varies at a time; the others stay at 200 clouds of 50
points in two dimensions, 100 slices, 100 quantiles and 20 reference atoms. ``slope`` is the slope
of the least squares line through the logarithms of time and size. The computations:

- ``SW2``, ``MMD``: Gram matrix of the sliced Wasserstein distance, and of the exact maximum mean
  discrepancy with a Gaussian kernel;
- ``potentials``: Sinkhorn potentials of all clouds at epsilon 0.05;
- ``SW2 by POT``: ``ot.sliced_wasserstein_distance`` in a loop over all pairs, extrapolated from 100
  pairs;
- ``RBF of coordinates``: scikit-learn's ``rbf_kernel`` of the coordinates as plain vectors, which is
  the cost of a Gram matrix of this size without distributions.

``figures/scaling.png`` shows the lines. ``sliced_wasserstein_gram``,
``mmd_gram`` and ``sinkhorn_potentials`` compare costs with bare
primitives, POT, OTT and GeomLoss.

**Profile**: ``fit`` on 300 clouds of 100 points and ``predict`` on 900 others, by ``cProfile``. For
each layer, the columns are the seconds in its own functions and in the compiled functions that they
call, the share of the total, and the three slowest functions. ``torch`` includes the gradients of
``fit``.

    python -m benchmarks.speed.scaling [--quick] [--repeats 3]
"""

from __future__ import annotations

import cProfile
import pstats
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ot
import torch
from gpytorch.kernels import ScaleKernel
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, Side, Work, cell, drawing, interleave, main
from benchmarks.papers.learning_curves import slope
from gp_distributions.distances import Distance


@dataclass(frozen=True)
class Sizes:
    """The sizes of one problem."""

    clouds: int = 200
    points: int = 50
    dim: int = 2
    slices: int = 100
    atoms: int = 20

    def points_of_clouds(self) -> Tensor:
        """Gaussian clouds of several means and spreads."""
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        spread = 0.1 + 0.1 * normal(self.clouds, 1, 1).abs()
        centre = 0.3 * normal(self.clouds, 1, self.dim)
        return centre + spread * normal(self.clouds, self.points, self.dim)


NAMES = {
    "clouds": "T, clouds",
    "points": "n, points of a cloud",
    "dim": "d, dimension",
    "slices": "slices",
    "atoms": "m, atoms of the reference",
}
SWEEPS = {
    "clouds": (100, 200, 400, 800),
    "points": (25, 50, 100, 200),
    "dim": (2, 4, 8, 16),
    "slices": (25, 50, 100, 200, 400),
    "atoms": (10, 20, 40, 80),
}
QUICK = {"clouds": (10, 20), "points": (5, 10), "dim": (2, 3), "slices": (5, 10), "atoms": (4, 8)}
POT, PAIRS = "SW2 by POT", 100


def uncached(distance: Distance, work: Work) -> Side:
    """Return a side that computes everything again in each round."""

    def prepare() -> Work:
        distance.clear_cache()
        return work

    return prepare


def sides(sizes: Sizes, axis: str) -> dict[str, Side]:
    """Computations whose cost depends on a size."""
    points = sizes.points_of_clouds()
    rows = gd.PointClouds(points).pack()
    vectors, arrays = points.flatten(1).numpy(), points.numpy()
    found: dict[str, Side] = {}
    if axis != "atoms":
        sliced = gd.SlicedWasserstein(sizes.dim, num_slices=sizes.slices)
        found["SW2"] = uncached(sliced, lambda: sliced.squared(rows))
    if axis in ("clouds", "points", "dim"):
        mmd = gd.MMD(sizes.dim, bandwidth=0.3)
        found["MMD"] = uncached(mmd, lambda: mmd.squared(rows))
        found["RBF of coordinates"] = lambda: lambda: rbf_kernel(vectors)
    if axis != "slices":
        generator = torch.Generator().manual_seed(1)
        atoms = torch.randn(sizes.atoms, sizes.dim, generator=generator, dtype=torch.float64)
        potential = gd.SinkhornPotential(gd.ReferenceMeasure(0.3 * atoms), epsilon=0.05)
        found["potentials"] = uncached(potential, lambda: potential.embed(rows))
    if axis != "atoms":
        pairs = [(i % sizes.clouds, (i + 1) % sizes.clouds) for i in range(PAIRS)]

        def loop() -> None:
            for i, j in pairs:
                ot.sliced_wasserstein_distance(arrays[i], arrays[j], n_projections=sizes.slices)

        found[POT] = lambda: loop
    return found


def growth(axis: str, values: Sequence[int], base: Sizes, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each computation along one size."""
    found: dict[str, list[float]] = {}
    for value in values:
        sizes = replace(base, **{axis: value})
        timings = interleave(sides(sizes, axis), repeats=repeats, label=f"{axis} {value}")
        for name, timing in timings.items():
            pairs = sizes.clouds * (sizes.clouds - 1) / 2
            times = pairs / PAIRS if name == POT else 1
            found.setdefault(name, []).append(1000 * timing.median * times)
    return found


def save_growth(found: dict[str, dict[str, list[float]]], options: Options) -> None:
    """Draw the times of all computations along all sizes."""
    names = dict.fromkeys(name for times in found.values() for name in times)
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    with drawing("scaling", options, len(found), figsize=(13, 3.2), sharey=True) as axes:
        for ax, (axis, times) in zip(axes, found.items(), strict=True):
            for name, values in times.items():
                ax.loglog(SWEEPS[axis], values, "o-", ms=4, c=colours[name], label=name)
            ax.set_xticks(SWEEPS[axis], map(str, SWEEPS[axis]))
            ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            ax.set(xlabel=NAMES[axis])
        axes[0].set(ylabel="milliseconds")
        lines = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(*lines, loc="outside upper center", ncols=len(colours))


Function = tuple[str, int, str]


def layer(function: Function) -> str | None:
    """Return the layer of a function, or None for compiled functions, which count for their callers."""
    path = Path(function[0])
    package = Path(gd.__file__).parent
    if path.is_relative_to(package):
        return path.relative_to(package).parts[0].removesuffix(".py")
    parts = path.parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    return None if function[0] == "~" else "other"


def profile(name: str, work: Callable[[], object]) -> list[Row]:
    """Return one row per layer, the slowest first."""
    profiler = cProfile.Profile()
    profiler.runcall(work)
    # For each function: calls, own seconds, total seconds, and the same for each caller.
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    spent: dict[str, dict[str, float]] = {}
    for function, (_, _, own, _, callers) in stats.items():
        short = re.sub(r"<(?:built-in )?method '?([\w.]+).*", r"\1", function[2])
        home = layer(function)
        shares = {function: own} if home else {who: times[2] for who, times in callers.items()}
        for who, seconds in shares.items():
            of_layer = spent.setdefault(home or layer(who) or "other", {})
            of_layer[short] = of_layer.get(short, 0.0) + seconds
    total = sum(sum(functions.values()) for functions in spent.values())
    rows: list[Row] = []
    for where, functions in spent.items():
        seconds = sum(functions.values())
        longest = sorted(functions.items(), key=lambda item: -item[1])[:3]
        rows.append(
            {
                "profile of": name,
                "layer": where,
                "seconds": seconds,
                "share": seconds / total,
                "longest": ", ".join(f"{short} {value / total:.1%}" for short, value in longest),
            }
        )
    ranked = sorted(rows, key=lambda row: -float(str(row["share"])))
    return [row for row in ranked if float(str(row["share"])) >= 0.01]


def models(clouds: int, points: int) -> list[Row]:
    """Profile two models."""
    inputs = gd.PointClouds(Sizes(clouds=4 * clouds, points=points).points_of_clouds())
    train, test = inputs[:clouds], inputs[clouds:]
    targets = train.points.mean(-2).norm(dim=-1)
    reference = gd.ReferenceMeasure.from_data(train, 20)
    rows = []
    for name, distance in (
        ("sliced Wasserstein", gd.SlicedWasserstein(2)),
        ("Sinkhorn potentials", gd.SinkhornPotential(reference)),
    ):
        model = gd.DistributionGP(
            train, targets, ScaleKernel(gd.DistributionKernel(distance, "gaussian"))
        )

        def work(model: gd.DistributionGP = model) -> None:
            gd.fit(model).predict(test)

        rows += profile(name, work)
    return rows


def run(options: Options) -> list[Row]:
    """Measure growth by computation and size, then the profiles."""
    base = Sizes(10, 5, 2, 5, 4) if options.quick else Sizes()
    sweeps = QUICK if options.quick else SWEEPS
    repeats = min(options.repeats, 3)
    found = {axis: growth(axis, values, base, repeats) for axis, values in sweeps.items()}
    if not options.quick:
        save_growth(found, options)
    rows: list[Row] = [
        {
            "work": name,
            "grows with": NAMES[axis],
            "sizes": ", ".join(map(str, sweeps[axis])),
            "ms": ", ".join(map(cell, times)),
            "slope": slope(sweeps[axis], times),
        }
        for axis, works in found.items()
        for name, times in works.items()
    ]
    return rows + (models(20, 10) if options.quick else models(300, 100))


if __name__ == "__main__":
    main(run)
