"""How far is SW2^2 at 100 slices from the integral over all directions?

The sides, each with 100 directions and exact quantiles:

- ``iid``: independent directions and uncentred clouds, by POT, as in Meunier et al.
  2022;
- ``orthogonal + exact mean``: random orthonormal bases on centred clouds, plus the exact term
  |difference of means|^2 / d;
- ``Fibonacci + exact mean``: the Fibonacci lattice on the half sphere, for d = 3;
- ``ours``: the directions of ``SlicedWasserstein``, equispaced for d = 2 and of least energy
  otherwise, with the exact mean.

For each seed there are ten clouds of 100 Gaussian atoms, ``z @ A + m`` with ``z`` standard normal,
``m ~ N(0, I_d)`` and a (d + 2) x d matrix ``A`` with entries N(0, 1 / (d + 2)). Covariances are thus
Wishart with d + 2 degrees of freedom and mean I: rather anisotropic, with all orientations. The error
is |estimate / reference - 1|, averaged over the 45 pairs and over seeds.

The reference is the mean over many random rotations of one set of 100 directions, on centred clouds
with the exact mean. It is unbiased for any set, because every rotated direction is uniform on the
sphere. ``reference_error`` is its relative standard error, averaged in the same way.

    python -m benchmarks.numerics.slice_accuracy [--quick] [--seeds 5]
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import ot
import torch
from torch import Tensor

from benchmarks.harness import Options, Row, main, means, progress
from gp_distributions import PointClouds, SlicedWasserstein
from gp_distributions.numerics.directions import sphere_directions

SLICES = 100
ATOMS = 100
CLOUDS = 10


def clouds(dim: int, seed: int) -> Tensor:
    """Ten clouds as described above, ``10 x 100 x d``."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((CLOUDS, dim + 2, dim)) / math.sqrt(dim + 2)
    atoms = rng.standard_normal((CLOUDS, ATOMS, dim + 2)) @ factors
    points = atoms + rng.standard_normal((CLOUDS, 1, dim))
    return torch.from_numpy(points)


def by_pot(points: Tensor, seed: int) -> Tensor:
    """Squared distances of all 45 pairs by POT."""
    distances = [
        ot.sliced_wasserstein_distance(a, b, n_projections=SLICES, seed=seed)
        for i, a in enumerate(points.numpy())
        for b in points[i + 1 :].numpy()
    ]
    return torch.tensor(distances, dtype=torch.float64).square()


def with_directions(distance: SlicedWasserstein, directions: Tensor, rows: Tensor) -> Tensor:
    """Squared distances of all 45 pairs along ``directions``; the part due to the means is exact."""
    distance.directions = directions
    squared = distance.squared(rows)
    return squared[torch.ones_like(squared, dtype=torch.bool).triu(1)]


def rotations(dim: int, number: int, seed: int) -> Iterator[Tensor]:
    """Uniformly random orthogonal matrices."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
        yield torch.from_numpy(q * np.sign(np.diag(r)))


def reference(
    distance: SlicedWasserstein, rows: Tensor, number: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Mean and standard error of the 45 squared distances over random rotations of directions."""
    base = sphere_directions(distance.dim, SLICES, seed=seed)
    estimates = torch.stack(
        [with_directions(distance, base @ q, rows) for q in rotations(distance.dim, number, seed)]
    )
    return estimates.mean(0), estimates.std(0) / math.sqrt(number)


def orthogonal(dim: int, seed: int) -> Tensor:
    """Random orthonormal bases stacked, ``100 x d``."""
    bases = list(rotations(dim, -(-SLICES // dim), seed))
    return torch.cat(bases)[:SLICES]


def fibonacci() -> Tensor:
    """The Fibonacci lattice on the half sphere, ``100 x 3``."""
    index = torch.arange(SLICES, dtype=torch.float64)
    height = (index + 0.5) / SLICES
    angle = index * math.pi * (3 - math.sqrt(5))
    radius = (1 - height.square()).sqrt()
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], dim=-1)


def errors(dim: int, seed: int, number: int) -> dict[str, float]:
    """Mean relative error of each side, and of the reference, on the clouds of one seed."""
    points = clouds(dim, seed)
    rows = PointClouds(points).pack()
    distance = SlicedWasserstein(dim, num_slices=SLICES, num_quantiles=ATOMS, seed=seed)
    own = distance.directions
    # Separate seeds, so that the reference shares no random numbers with the sides.
    exact, spread = reference(distance, rows, number, seed=10_000 + seed)
    estimates = {
        "iid": by_pot(points, seed=1000 + seed),
        "orthogonal + exact mean": with_directions(distance, orthogonal(dim, 2000 + seed), rows),
    }
    if dim == 3:
        estimates["Fibonacci + exact mean"] = with_directions(distance, fibonacci(), rows)
    estimates["ours"] = with_directions(distance, own, rows)
    found = {name: float((value / exact - 1).abs().mean()) for name, value in estimates.items()}
    return found | {"reference": float((spread / exact).mean())}


def run(options: Options) -> list[Row]:
    """Return one row per dimension and side."""
    dims, number = ((2, 3), 20) if options.quick else ((2, 3, 5, 8, 10), 1000)
    rows: list[Row] = []
    for dim in dims:
        each = progress(range(options.seeds), f"slice accuracy, d = {dim}")
        found = [errors(dim, seed, number) for seed in each]
        mean = means(found)
        rows += [
            {
                "d": dim,
                "side": side,
                "error": mean[side],
                "lowest": min(one[side] for one in found),
                "highest": max(one[side] for one in found),
                "reference_error": mean["reference"],
            }
            for side in mean
            if side != "reference"
        ]
    return rows


if __name__ == "__main__":
    main(run)
