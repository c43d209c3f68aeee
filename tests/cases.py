"""What is under test: a new distance or profile joins every shared test by one line here."""

from collections.abc import Callable

import torch
from torch import Tensor

from gp_distributions import (
    Distance,
    DistributionKernel,
    LinearTransport,
    ReferenceMeasure,
    SinkhornPotential,
    SlicedWasserstein,
)
from gp_distributions.kernels.profiles import PROFILES
from gp_distributions.numerics.rows import join_rows


def _reference() -> ReferenceMeasure:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    return ReferenceMeasure(points, torch.arange(1, 7))


# Distances on weighted clouds in two dimensions.
DISTANCES: dict[str, Callable[[], Distance]] = {
    "sw2": lambda: SlicedWasserstein(2, num_slices=20, num_quantiles=30),
    "sw2-centred": lambda: SlicedWasserstein(2, num_slices=20, num_quantiles=30, center=True),
    "sinkhorn": lambda: SinkhornPotential(_reference(), epsilon=0.5),
    "linear-transport": lambda: LinearTransport(_reference(), epsilon=0.5),
    "sw1": lambda: SlicedWasserstein(2, p=1, num_slices=20, num_quantiles=30),
}

# Every distance with a smooth and a root profile; every profile with and without an embedding.
KERNELS: dict[str, Callable[[], DistributionKernel]] = {
    f"{distance}-{profile}": lambda distance=distance, profile=profile: DistributionKernel(
        DISTANCES[distance](), profile
    )
    for distance in DISTANCES
    for profile in PROFILES
    if distance in ("sw1", "sw2") or profile in ("gaussian", "exponential")
}


def random_clouds(
    num: int, *, dim: int = 2, seed: int = 0, sizes: tuple[int, int] = (1, 40)
) -> list[tuple[Tensor, Tensor]]:
    """Ragged weighted clouds in general position, as points and weights."""
    generator = torch.Generator().manual_seed(seed)
    clouds = []
    for _ in range(num):
        size = int(torch.randint(sizes[0], sizes[1] + 1, (), generator=generator))
        shape = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        shift = torch.randn(dim, generator=generator, dtype=torch.float64)
        points = torch.randn(size, dim, generator=generator, dtype=torch.float64) @ shape + shift
        weights = 0.1 + torch.rand(size, generator=generator, dtype=torch.float64)
        clouds.append((points, weights / weights.sum()))
    return clouds


def as_rows(clouds: list[tuple[Tensor, Tensor]], *, atoms: int | None = None) -> Tensor:
    """Clouds as rows, padded to ``atoms``."""
    width = max(len(weights) for _, weights in clouds) if atoms is None else atoms
    return torch.stack(
        [
            torch.nn.functional.pad(
                join_rows(points, weights),
                (0, (width - len(weights)) * (points.shape[-1] + 1)),
            )
            for points, weights in clouds
        ]
    )


def random_rows(num: int, **options: object) -> Tensor:
    """Random ragged weighted clouds as rows."""
    return as_rows(random_clouds(num, **options))  # type: ignore[arg-type]
