"""Draw atoms from the average of distributions, and compute their median distance."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.numerics.medians import COINCIDENT, median_apart
from gp_distributions.numerics.sorting import argsort

# Largest number of atoms that are sorted at a time.
_PART = 2**22


def draw_atoms(
    points: Tensor, weights: Tensor, count: int, *, seed: int = 0, covariance: Tensor | None = None
) -> Tensor:
    """Draw atoms from the average of weighted clouds, with replacement.

    An atom is drawn as the quantile of its cloud along a random direction, at a random level. The draws
    therefore depend neither on padding nor on the order of atoms, and atoms may be split into copies.

    Args:
        points: A ``C x n x d`` tensor of atoms, or of the means of Gaussian components.
        weights: A ``C x n`` tensor of weights; all clouds count equally.
        count: Smallest number of draws. Each of ``count`` clouds, or of all if they are fewer, gives
            equally many.
        seed: Random seed. The draws are the same on every device.
        covariance: A ``C x n x d x d`` tensor, the covariances of Gaussian components.

    Returns:
        An ``M x d`` tensor on the CPU, in double precision, with ``count <= M < 2 * count``.
    """
    generator = torch.Generator().manual_seed(seed)
    clouds = torch.randperm(len(points), generator=generator)[:count]
    each = -(-count // len(clouds))
    levels = torch.rand(len(clouds), each, generator=generator, dtype=torch.float64)
    direction = torch.randn(2, points.shape[-1], generator=generator, dtype=torch.float64)
    size = max(1, _PART // weights.shape[-1])
    drawn = []
    for some, level in zip(clouds.split(size), levels.split(size), strict=True):
        cloud = some.to(points.device)
        places = points[cloud].double().cpu() @ direction[0]
        if covariance is not None:  # components of one mean may differ in their spread
            variances = covariance[cloud].double().cpu().diagonal(dim1=-2, dim2=-1)
            places = places + variances.clamp_min(0).sqrt() @ direction[1]
        order = argsort(places)
        cumulative = weights[cloud].double().cpu().gather(-1, order).cumsum(-1)
        index = torch.searchsorted(cumulative, level * cumulative[:, -1:], right=True)
        drawn.append(order.gather(-1, index).to(points.device))
    index = torch.cat(drawn).flatten()
    clouds = clouds.to(points.device).repeat_interleave(each)
    atoms = points[clouds, index].double().cpu()
    if covariance is None:
        return atoms
    variances, axes = torch.linalg.eigh(covariance[clouds, index].double().cpu())
    normal = torch.randn(atoms.shape, generator=generator, dtype=torch.float64)
    moves = axes @ (variances.clamp_min(0).sqrt() * normal).unsqueeze(-1)
    return atoms + moves.squeeze(-1)


def median_distance(atoms: Tensor) -> float:
    """Return the median distance between atoms that do not coincide, or zero if all coincide.

    Args:
        atoms: An ``M x d`` tensor of at least two atoms.
    """
    rounding = COINCIDENT * torch.finfo(atoms.dtype).eps * atoms.abs().max()
    return median_apart(torch.pdist(atoms), rounding=rounding).nan_to_num(0.0).item()
