"""How does the cost grow with the sizes of a problem?

The columns are medians in milliseconds. One size varies at a time; the others stay at 200 clouds of 50
points in two dimensions, 100 slices, 100 quantiles and 20 reference atoms. ``slope`` is the slope
of the least squares line through the logarithms of time and size. The computations:

- ``SW2``, ``MMD``: Gram matrix of the sliced Wasserstein distance, and of the exact maximum mean
  discrepancy with a Gaussian kernel;
- ``potentials``: Sinkhorn potentials of all clouds at epsilon 0.05;
- ``SW2 by POT``: ``ot.sliced_wasserstein_distance`` in a loop over all pairs, extrapolated from 100
  pairs;
- ``RBF of coordinates``: scikit-learn's ``rbf_kernel`` of the coordinates as plain vectors, which is
  the cost of a Gram matrix of this size without distributions.

``figures/scaling.png`` shows the lines. ``sliced_wasserstein_gram``, ``mmd_gram`` and
``sinkhorn_potentials`` compare costs with bare primitives, POT, OTT and GeomLoss.

    python -m benchmarks.speed.scaling [--quick] [--repeats 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ot
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, Side, cell, drawing, interleave, main
from benchmarks.papers.learning_curves import slope
from benchmarks.speed.clouds import gram, uncached


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
        draws = Draws(0)
        spread = 0.1 + 0.1 * draws.normal(self.clouds, 1, 1).abs()
        centre = 0.3 * draws.normal(self.clouds, 1, self.dim)
        return centre + spread * draws.normal(self.clouds, self.points, self.dim)


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


def sides(sizes: Sizes, axis: str) -> dict[str, Side]:
    """Computations whose cost depends on a size."""
    points = sizes.points_of_clouds()
    rows = gd.PointClouds(points).pack()
    vectors, arrays = points.flatten(1).numpy(), points.numpy()
    found: dict[str, Side] = {}
    if axis != "atoms":
        found["SW2"] = gram(gd.SlicedWasserstein(sizes.dim, num_slices=sizes.slices), rows)
    if axis in ("clouds", "points", "dim"):
        found["MMD"] = gram(gd.MMD(sizes.dim, bandwidth=0.3), rows)
        found["RBF of coordinates"] = lambda: lambda: rbf_kernel(vectors)
    if axis != "slices":
        reference = gd.ReferenceMeasure(0.3 * Draws(1).normal(sizes.atoms, sizes.dim))
        potential = gd.SinkhornPotential(reference, epsilon=0.05)
        found["potentials"] = uncached(potential, lambda: potential.embed(rows))
    if axis != "atoms":

        def loop() -> None:
            for i in range(PAIRS):
                pair = arrays[i % sizes.clouds], arrays[(i + 1) % sizes.clouds]
                ot.sliced_wasserstein_distance(*pair, n_projections=sizes.slices)

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


def run(options: Options) -> list[Row]:
    """Measure growth by computation and size."""
    base = Sizes(10, 5, 2, 5, 4) if options.quick else Sizes()
    sweeps = QUICK if options.quick else SWEEPS
    repeats = min(options.repeats, 3)
    found = {axis: growth(axis, values, base, repeats) for axis, values in sweeps.items()}
    if not options.quick:
        save_growth(found, options)
    return [
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


if __name__ == "__main__":
    main(run)
