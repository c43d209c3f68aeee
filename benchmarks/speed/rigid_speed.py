"""How much longer does it take to embed shapes in unknown pose?

Ours: ``RigidSlicedWasserstein(dim).embed(rows)`` at its defaults, for 1000 Gaussian clouds of 100
points in two and in three dimensions. The reference is ``SlicedWasserstein(dim).embed(rows)`` with
its 100 slices and 100 quantiles on the same rows. Neither remembers the rows.

    python -m benchmarks.speed.rigid_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import torch

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main
from benchmarks.judging import limit
from gp_distributions import PointClouds, RigidSlicedWasserstein, SlicedWasserstein
from gp_distributions.distances import Distance

TARGETS = tuple(
    limit(
        f"embedding 1000 clouds of 100 points in {dim} dimensions in unknown pose, over SW2",
        target,
        "ratio",
        name=f"rigid / sliced Wasserstein, embed T=1000 n=100 d={dim}",
        asked=True,
    )
    for dim, target in ((2, "<= 3"), (3, "<= 12"))
)


def run(options: Options) -> list[Row]:
    """Return one row per dimension."""
    clouds, atoms = (20, 10) if options.quick else (1000, 100)
    rows: list[Row] = []
    for dim in (2, 3):
        generator = torch.Generator().manual_seed(dim)
        points = torch.randn(clouds, atoms, dim, generator=generator, dtype=torch.float64)
        packed = PointClouds(points).pack()

        def side(distance: Distance, packed: torch.Tensor = packed) -> Side:
            def prepare() -> Work:
                return lambda: distance.embed(packed)

            return prepare

        sides = {"rigid": side(RigidSlicedWasserstein(dim)), "sliced": side(SlicedWasserstein(dim))}
        timings = interleave(sides, repeats=options.repeats, label=f"embed, d={dim}")
        name = f"rigid / sliced Wasserstein, embed T={clouds} n={atoms} d={dim}"
        rows.append(compare(name, timings["rigid"], timings["sliced"]))
    return rows


if __name__ == "__main__":
    main(run)
