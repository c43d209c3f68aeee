"""How much longer does it take to embed shapes in unknown pose?

Ours: ``RigidSlicedWasserstein(dim).embed(rows)`` at its defaults, for 1000 Gaussian clouds of 100
points in two and in three dimensions. The reference is ``SlicedWasserstein(dim).embed(rows)`` with
its 100 slices and 100 quantiles on the same rows. Neither remembers the rows.

    python -m benchmarks.speed.rigid_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

from functools import partial

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, compare, interleave, main
from benchmarks.judging import limit
from benchmarks.speed.clouds import fixed

TARGETS = tuple(
    limit(
        f"embedding 1000 clouds of 100 points in {dim} dimensions in unknown pose, over SW2",
        target,
        "ratio",
        name=f"rigid / sliced Wasserstein, embed T=1000 n=100 d={dim}",
        asked=dim == 3,
    )
    for dim, target in ((2, "<= 3"), (3, "<= 12"))
)


def run(options: Options) -> list[Row]:
    """Return one row per dimension."""
    clouds, atoms = (20, 10) if options.quick else (1000, 100)
    rows: list[Row] = []
    for dim in (2, 3):
        packed = gd.PointClouds(Draws(dim).normal(clouds, atoms, dim)).pack()
        sides = {
            kind.__name__: fixed(partial(kind(dim).embed, packed))
            for kind in (gd.RigidSlicedWasserstein, gd.SlicedWasserstein)
        }
        timings = interleave(sides, repeats=options.repeats, label=f"embed, d={dim}")
        name = f"rigid / sliced Wasserstein, embed T={clouds} n={atoms} d={dim}"
        rows.append(compare(name, *timings.values()))
    return rows


if __name__ == "__main__":
    main(run)
