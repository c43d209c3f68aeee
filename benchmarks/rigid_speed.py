"""How much longer does it take to embed shapes in unknown pose?

Ours: ``RigidSlicedWasserstein(dim).embed(rows)`` at its defaults, for 1000 Gaussian clouds of 100
points in two and in three dimensions. The reference is ``SlicedWasserstein(dim).embed(rows)`` with
its 100 slices and 100 quantiles on the same rows. Neither remembers the rows.

    python -m benchmarks.rigid_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import torch

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main
from gp_distributions import PointClouds, RigidSlicedWasserstein, SlicedWasserstein
from gp_distributions.distances import Distance

MOST = {2: 3.0, 3: 12.0}


def run(options: Options) -> list[Row]:
    """Return one row per dimension."""
    clouds, atoms = (20, 10) if options.quick else (1000, 100)
    rows: list[Row] = []
    for dim, most in MOST.items():
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
        medians = (timings[key].median for key in ("rigid", "sliced"))
        rows.append(compare(name, *medians, at_most=None if options.quick else most))
    return rows


if __name__ == "__main__":
    main(__doc__, run)
