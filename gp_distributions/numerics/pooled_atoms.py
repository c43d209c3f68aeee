"""Draw atoms from the average of distributions, and compute their median distance."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.numerics.medians import COINCIDENT, median_apart

# Largest number of weights that are processed at a time.
_PART = 2**22


def draw_atoms(
    points: Tensor, weights: Tensor, count: int, *, seed: int = 0, covariance: Tensor | None = None
) -> Tensor:
    """Draw atoms from the average of weighted clouds, with replacement.

    Args:
        points: A ``C x n x d`` tensor of atoms, or of the means of Gaussian components.
        weights: A ``C x n`` tensor of weights; all clouds count equally.
        count: Number of draws.
        seed: Random seed. The draws are the same on every device.
        covariance: A ``C x n x d x d`` tensor, the covariances of Gaussian components.

    Returns:
        A ``count x d`` tensor on the CPU, in double precision.
    """
    generator = torch.Generator().manual_seed(seed)
    clouds = torch.randint(len(points), (count,), generator=generator).to(points.device)
    # Each draw needs all weights of its cloud; parts bound the memory.
    size = max(1, _PART // weights.shape[-1])
    index = torch.cat(
        [
            weights[some].double().cpu().multinomial(1, generator=generator).squeeze(-1)
            for some in clouds.split(size)
        ]
    ).to(points.device)
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
