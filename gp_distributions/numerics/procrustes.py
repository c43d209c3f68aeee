"""Rigid motions that bring points closest to corresponding points."""

from __future__ import annotations

import torch
from torch import Tensor


def procrustes(
    points: Tensor, target: Tensor, weights: Tensor, *, center: bool = True, scale: bool = False
) -> Tensor:
    r"""Move points to corresponding points by the best rotation, translation and scaling.

    With :math:`U S V^\top` the singular value decomposition of :math:`\sum_i w_i y_i x_i^\top`, the
    rotation is :math:`U D V^\top`, where :math:`D` changes the sign of the smallest singular value if
    the determinant would be negative (Kabsch 1976).

    Args:
        points: The points :math:`x_i`, ``n x d``.
        target: The points :math:`y_i`, ``n x d``.
        weights: The ``n`` weights :math:`w_i`, which sum to one.
        center: Whether to move the mean of the points to that of the targets.
        scale: Whether to give the points the root mean square radius of the targets.

    Returns:
        The moved points.
    """
    old, new = (weights @ x if center else torch.zeros_like(x[0]) for x in (points, target))
    moving, fixed = points - old, target - new
    left, _, right = torch.linalg.svd((weights.unsqueeze(-1) * fixed).mT @ moving)
    signs = torch.ones_like(old)
    signs[-1] = torch.linalg.det(left @ right)
    moved = moving @ (left * signs @ right).mT
    if scale:
        radii = [(weights @ x.square().sum(-1)).sqrt() for x in (moving, fixed)]
        if radii[0] > 0:
            moved = moved * (radii[1] / radii[0])
    return moved + new
