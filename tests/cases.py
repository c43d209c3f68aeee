"""What is under test: a new distance joins every shared test by one line here, a profile by none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gp_distributions import (
    MMD,
    Distance,
    DistributionKernel,
    Fourier,
    Hellinger,
    LinearTransport,
    PrecomputedDistance,
    ReferenceMeasure,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
)
from gp_distributions.kernels.profiles import PROFILES
from gp_distributions.rows.clouds import join_rows

Clouds = list[tuple[Tensor, Tensor]]
Module = TypeVar("Module", bound=torch.nn.Module)


def random_clouds(
    num: int, *, dim: int = 2, seed: int = 0, sizes: tuple[int, int] = (1, 40)
) -> Clouds:
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


def lattice_clouds(num: int, **options: object) -> Clouds:
    """Ragged weighted clouds on the cells of ``GRID``; some atoms coincide."""
    clouds = random_clouds(num, **options)  # type: ignore[arg-type]
    return [(points.round().clamp(-2, 2), weights) for points, weights in clouds]


def random_gaussians(num: int, *, seed: int = 0, sizes: object = None) -> Clouds:
    """Gaussians in two dimensions: each one atom, its mean and its covariance, of weight one."""
    moments = []
    for points, _ in random_clouds(num, seed=seed, sizes=(5, 5)):
        centred = points - points.mean(0)
        moments.append(torch.cat([points.mean(0), (centred.T @ centred / 5).flatten()]))
    return [(atom[None], atom.new_ones(1)) for atom in moments]


def random_mixtures(num: int, **options: object) -> Clouds:
    """Ragged mixtures of Gaussians in one dimension: atoms are means and variances."""
    clouds = random_clouds(num, dim=2, **options)  # type: ignore[arg-type]
    return [(torch.stack([p[:, 0], 0.1 + p[:, 1].abs()], -1), w) for p, w in clouds]


def random_indices(num: int, *, seed: int = 0, sizes: object = None) -> Clouds:
    """Numbers of objects, some of them several times."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(len(OBJECTS), (num, 1, 1), generator=generator).double()
    return [(index, index.new_ones(1)) for index in indices]


@dataclass(frozen=True)
class Inputs:
    """The kind of rows that a distance is tested on.

    Attributes:
        draw: Atoms and weights of some random rows, from their number, ``seed`` and ``sizes``.
        columns: Random rows of a shape, of which any six columns are rows too; GPyTorch's test case
            selects columns. ``None`` where six columns are no row.
        weighted: Whether a row is a set of weighted atoms, which can be padded, ordered and split,
            rather than a single atom without a weight.
        labels: Whether atoms cannot move, because they are labels or numbers.
        project: Makes rows valid when each of their columns moves for itself.
        special: The special positions that are tried.
    """

    draw: Callable[..., Clouds]
    columns: Callable[..., Tensor] | None
    weighted: bool = True
    labels: bool = False
    project: Callable[[Tensor], Tensor] = torch.clone
    special: tuple[str, ...] = ("coincident", "single atoms", "ties", "split", "padded")

    def rows(self, num: int, *, atoms: int | None = None, **options: object) -> Tensor:
        """Random rows."""
        return self.pack(self.draw(num, **options), atoms=atoms)

    def pack(self, clouds: Clouds, *, atoms: int | None = None) -> Tensor:
        """Atoms and weights as rows, padded to ``atoms`` if they are weighted."""
        if self.weighted:
            return as_rows(clouds, atoms=atoms)
        return torch.stack([points.flatten() for points, _ in clouds])

    def join(self, points: Tensor, weights: Tensor) -> Tensor:
        """Atoms, ``num x m x atom_dim``, and weights, ``num x m``, as rows."""
        return join_rows(points, weights) if self.weighted else points.flatten(-2)


def as_rows(clouds: Clouds, *, atoms: int | None = None) -> Tensor:
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


def _symmetric(rows: Tensor) -> Tensor:
    mean, covariance = rows[..., :2], rows[..., 2:].unflatten(-1, (2, 2))
    return torch.cat([mean, (covariance + covariance.mT).flatten(-2) / 2], dim=-1)


# Any columns of positive numbers are clouds; of ones and twos, on GRID; of one number, Gaussians.
CLOUDS = Inputs(random_clouds, lambda *shape: 0.1 + torch.rand(shape))
LATTICE = Inputs(lattice_clouds, lambda *shape: torch.randint(1, 3, shape).float(), labels=True)
GAUSSIANS = Inputs(
    random_gaussians,
    lambda *shape: (0.1 + torch.rand(*shape[:-1], 1)).expand(shape),
    weighted=False,
    project=_symmetric,
    special=("coincident",),
)
MIXTURES = Inputs(random_mixtures, CLOUDS.columns, special=("coincident", "split", "padded"))
INDICES = Inputs(random_indices, None, weighted=False, labels=True, special=("coincident",))

GRID = torch.cartesian_prod(*[torch.arange(-2.0, 3.0, dtype=torch.float64)] * 2)
# Squared distances of points in five dimensions.
OBJECTS = torch.cdist(*[GRID[:, :1] ** torch.arange(1, 6) - GRID[:, 1:]] * 2).square() / 100


def _reference() -> ReferenceMeasure:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    return ReferenceMeasure(points, torch.arange(1, 7))


@dataclass(frozen=True)
class Case(Generic[Module]):
    """How to make what is tested, by a call, and the rows to test it on."""

    make: Callable[[], Module]
    inputs: Inputs = CLOUDS

    def __call__(self) -> Module:
        return self.make()


# On rows in two dimensions, of mixtures in one.
DISTANCES: dict[str, Case[Distance]] = {
    "sw2": Case(lambda: SlicedWasserstein(2, num_slices=20, num_quantiles=30)),
    "sw2-centred": Case(lambda: SlicedWasserstein(2, num_slices=20, num_quantiles=30, center=True)),
    "sinkhorn": Case(lambda: SinkhornPotential(_reference(), epsilon=0.5)),
    "linear-transport": Case(lambda: LinearTransport(_reference(), epsilon=0.5)),
    "sw1": Case(lambda: SlicedWasserstein(2, p=1, num_slices=20, num_quantiles=30)),
    "sw2-gaussians": Case(lambda: SlicedWasserstein(2, inputs="gaussians"), GAUSSIANS),
    "sw1-gaussians": Case(lambda: SlicedWasserstein(2, p=1, inputs="gaussians"), GAUSSIANS),
    "mmd": Case(lambda: MMD(2, bandwidth=1.0)),
    "mmd-laplace": Case(lambda: MMD(2, kernel="laplace", bandwidth=1.0)),
    "mmd-energy": Case(lambda: MMD(2, kernel="energy")),
    "mmd-features": Case(lambda: MMD(2, bandwidth=1.0, num_features=50)),
    "mmd-polynomial": Case(lambda: MMD(2, kernel="polynomial2")),
    "mmd-gaussians": Case(lambda: MMD(2, bandwidth=1.0, inputs="gaussians"), GAUSSIANS),
    "mmd-mixtures": Case(lambda: MMD(1, bandwidth=1.0, inputs="mixtures"), MIXTURES),
    "hellinger": Case(lambda: Hellinger(2, support=GRID), LATTICE),
    "total-variation": Case(lambda: TotalVariation(2, support=GRID), LATTICE),
    "fourier": Case(lambda: Fourier(2, num_frequencies=30)),
    "fourier-gaussians": Case(lambda: Fourier(2, inputs="gaussians"), GAUSSIANS),
    "fourier-mixtures": Case(lambda: Fourier(1, inputs="mixtures"), MIXTURES),
    "precomputed": Case(lambda: PrecomputedDistance(OBJECTS), INDICES),
}

# Every distance with a smooth and a root profile; every profile with and without an embedding.
KERNELS: dict[str, Case[DistributionKernel]] = {
    f"{distance}-{profile}": Case(
        lambda case=case, profile=profile: DistributionKernel(case(), profile), case.inputs
    )
    for distance, case in DISTANCES.items()
    for profile in PROFILES
    if distance in ("sw1", "sw2") or profile in ("gaussian", "exponential")
}
