"""Random clouds, Gaussians and mixtures as atoms with weights, and their conversion to rows."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gp_distributions.rows.clouds import join_rows, pad_rows

Clouds = list[tuple[Tensor, Tensor]]


def random_clouds(
    num: int, *, dim: int = 2, seed: int = 0, sizes: tuple[int, int] = (1, 40)
) -> Clouds:
    """Draw weighted clouds of different sizes in general position, as points and weights."""
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


def random_gaussians(
    num: int, *, dim: int = 2, seed: int = 0, sizes: tuple[int, int] | None = None
) -> Clouds:
    """Draw Gaussians, each as one atom of weight one: its mean and its row-major covariance."""
    atoms = []
    for points, _ in random_clouds(num, dim=dim, seed=seed, sizes=(dim + 3, dim + 3)):
        centred = points - points.mean(0)
        covariance = centred.T @ centred / len(points)
        atoms.append(torch.cat([points.mean(0), covariance.flatten()]))
    return [(atom[None], atom.new_ones(1)) for atom in atoms]


def random_mixtures(
    num: int, *, dim: int = 1, seed: int = 0, sizes: tuple[int, int] = (1, 40)
) -> Clouds:
    """Draw mixtures of different numbers of Gaussians; atoms are means and row-major covariances."""
    mixtures = []
    for atoms, weights in random_clouds(num, dim=2 * dim, seed=seed, sizes=sizes):
        mean, axis = atoms.split(dim, dim=-1)
        covariance = axis.unsqueeze(-1) * (axis / axis.norm(dim=-1, keepdim=True)).unsqueeze(-2)
        covariance = covariance + 0.1 * torch.eye(dim, dtype=axis.dtype)
        mixtures.append((torch.cat([mean, covariance.flatten(-2)], dim=-1), weights))
    return mixtures


def related_clouds(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Clouds:
    """Make clouds that have atoms in common, which reveal distances that are not Hilbertian.

    Args:
        first: The points and weights of a cloud of ``m`` atoms. The weights are ignored.
        second: The points and weights of a second cloud of ``m`` atoms. The weights are ignored.

    Returns:
        The ``2**m`` clouds that take each atom ``i`` from either ``first`` or ``second``, and the
        ``2**m - 1`` non-empty subsets of ``first``. The atoms of each cloud have equal weights.
    """
    clouds = []
    for chosen in itertools.product([False, True], repeat=len(first[0])):
        mask = torch.tensor(chosen)
        clouds.append(torch.where(mask.unsqueeze(-1), first[0], second[0]))
        if any(chosen):
            clouds.append(first[0][mask])
    return [(points, points.new_ones(len(points)) / len(points)) for points in clouds]


def pack_clouds(clouds: Clouds, *, atoms: int | None = None) -> Tensor:
    """Convert clouds to rows of equal width, padded to ``atoms`` atoms with atoms of weight zero."""
    rows = pad_sequence([join_rows(*cloud) for cloud in clouds], batch_first=True)
    return rows if atoms is None else pad_rows(rows, atoms * (clouds[0][0].shape[-1] + 1))
