"""Effective sample sizes of weighted clouds."""

from __future__ import annotations

import torch
from torch import Tensor

# Multiplier of hashes, an odd number (Steele, Lea and Flood 2014, Fast splittable generators).
_ODD = -0x61C8864680B583EB


def effective_sizes(points: Tensor, weights: Tensor, *, merge: bool = True) -> Tensor:
    r"""Compute the effective sample sizes of weighted clouds.

    Let :math:`w_i` be the weights of the atoms, by default after equal atoms have been merged. The
    effective sample size

    .. math:: n_\mathrm{eff} = \frac{(\sum_i w_i)^2}{\sum_i w_i^2}

    is the number of atoms if all weights are equal.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        merge: Whether equal atoms count as copies of one sample, rather than as separate measurements
            that agree.

    Returns:
        A tensor of sizes, of shape ``batch_shape``.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.effective_sizes import effective_sizes
        >>> points, weights = torch.tensor([[0.0], [1.0], [1.0]]), torch.ones(3)
        >>> effective_sizes(points, weights), effective_sizes(points, weights, merge=False)
        (tensor(1.8000), tensor(3.0000))

    Source: Kish 1965, Survey Sampling.
    """
    weights = weights / weights.sum(-1, keepdim=True)
    if not merge:
        return 1 / weights.square().sum(-1)
    # Equal atoms are adjacent in the order of their keys, and compared with each other.
    order = _keys(points.detach()).argsort(dim=-1)
    points = points.gather(-2, order.unsqueeze(-1).expand(points.shape))
    differs = (points[..., 1:, :] != points[..., :-1, :]).any(-1)
    atom = torch.nn.functional.pad(differs.cumsum(-1), (1, 0))
    weights = weights.gather(-1, order)
    return 1 / torch.zeros_like(weights).scatter_add(-1, atom, weights).square().sum(-1)


def _keys(points: Tensor) -> Tensor:
    """Hash atoms to integers, equal for equal atoms: no rounding, unlike a projection of them."""
    keys = torch.zeros(points.shape[:-1], dtype=torch.int64, device=points.device)
    for coordinate in (points.double() + 0.0).view(torch.int64).unbind(-1):  # -0.0 becomes 0.0
        keys = (keys ^ coordinate) * _ODD
        keys ^= keys >> 32
    return keys
