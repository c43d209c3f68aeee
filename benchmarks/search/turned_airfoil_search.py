"""Does a search find the best airfoil when every outline in the pool lies in unknown pose?

10 random and 40 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils``, each given
as 128 points and turned by a random angle. Every seed has its own angles and initial airfoils. The
model has the profile Matern 5/2 and is fitted by ``fit``; the acquisition function is log expected
improvement.

- ``rigid``: ``RigidSlicedWasserstein`` at its defaults.
- ``principal axes``: ``SlicedWasserstein`` on outlines that are turned to their principal axes, whose
  signs are chosen by the third moments.
- ``random``: random search.

The reported seeds are 3000 to 3009. They were frozen, with the settings of ``rigid``,
after a run on seed 0; ``principal axes`` has nothing to set.
Columns: as in ``airfoil_search``, evaluations until the first of the top hundredth and
until the best is found, means over seeds, where a miss counts as the number of evaluations; the number
of seeds that found it; the final best value, mean and standard deviation over seeds.

    python -m benchmarks.search.turned_airfoil_search [--quick]
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import Target
from benchmarks.regression import kernel_of
from benchmarks.search.searches import AirfoilPool, Outcome, Way, count_of, pool_rows
from benchmarks.shapes import principal_axes, turned
from gp_distributions.bayesopt import Pool
from gp_distributions.distances import Distance

LONG = True
FIRST = 3000
TARGETS = (
    Target(
        "pool search among turned airfoils, 10 + 40 evaluations: best airfoil found",
        "8 of 10",
        count_of("best_found", 8, "turned, seeds 3000-3009: rigid"),
        asked=True,
    ),
)


def model(make: type[Distance], X: Tensor, Y: Tensor) -> gd.DistributionGP:
    """Make a Gaussian process with the profile Matern 5/2 of a distance in the plane."""
    return gd.DistributionGP(X, Y, kernel_of(make(2)))


def run(options: Options) -> list[Row]:
    """Return one row per method."""
    pool = AirfoilPool(100, 12) if options.quick else AirfoilPool(None, 50)

    def way(make: type[Distance] | None, axes: bool, seed: int) -> Outcome:
        points = turned(pool.outlines.points, seed)
        clouds = Pool(gd.PointClouds(principal_axes(points) if axes else points))
        return pool.search(clouds, "random" if make is None else partial(model, make), seed)

    ways: dict[str, Way] = {
        "rigid": partial(way, gd.RigidSlicedWasserstein, False),
        "principal axes": partial(way, gd.SlicedWasserstein, True),
        "random": partial(way, None, False),
    }
    seeds = options.seeds if options.quick else 10
    return pool_rows("turned, ", ways, range(FIRST, FIRST + seeds))


if __name__ == "__main__":
    main(run)
