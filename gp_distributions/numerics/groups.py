"""Finite groups of linear maps, as tensors of matrices."""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import Tensor

# Two matrices are equal if their entries differ by this many rounding errors of the largest entry.
_ROUNDING = 1000


def planar_rotations(num_rotations: int, *, reflections: bool = False) -> Tensor:
    r"""Rotations of the plane by multiples of :math:`2 \pi / n`, with or without reflections.

    Args:
        num_rotations: Number ``n`` of rotations.
        reflections: Whether to add the ``n`` reflections that the rotations map to each other, one of
            them at the first axis.

    Returns:
        An ``n x 2 x 2`` tensor in double precision, or ``2n x 2 x 2`` with ``reflections``. The first
        matrix is the identity.

    Raises:
        ValueError: If ``num_rotations`` is less than one.

    Example:
        >>> from gp_distributions import planar_rotations
        >>> planar_rotations(4)[1].round()
        tensor([[ 0., -1.],
                [ 1.,  0.]], dtype=torch.float64)
        >>> planar_rotations(4, reflections=True).shape
        torch.Size([8, 2, 2])
    """
    if not isinstance(num_rotations, Integral) or num_rotations < 1:
        raise ValueError(f"Expected an integer num_rotations >= 1, got {num_rotations!r}.")
    angles = torch.arange(num_rotations, dtype=torch.float64) * (2 * math.pi / num_rotations)
    cosine, sine = angles.cos(), angles.sin()
    rotations = torch.stack([cosine, -sine, sine, cosine], dim=-1).reshape(-1, 2, 2)
    if not reflections:
        return rotations
    return torch.cat([rotations, rotations * rotations.new_tensor([1.0, -1.0])])


def checked_group(matrices: Tensor) -> Tensor:
    """Check that matrices form a group, and return them with the identity first.

    Args:
        matrices: A ``G x d x d`` tensor.

    Returns:
        The ``G x d x d`` tensor.

    Raises:
        ValueError: If the tensor has another shape, two matrices are equal, the identity is missing, or
            the product of two matrices is not among them.
    """
    if matrices.dim() != 3 or matrices.shape[-1] != matrices.shape[-2] or not matrices.numel():
        raise ValueError(
            f"Expected matrices as a G x d x d tensor, got shape {tuple(matrices.shape)}."
        )
    if not matrices.is_floating_point():
        raise ValueError(f"Expected floating-point matrices, got {matrices.dtype}.")
    identity = torch.eye(matrices.shape[-1]).to(matrices)
    is_identity = equal_matrices(matrices, identity[None]).squeeze(-1)
    if not bool(is_identity.any()):
        raise ValueError("Expected a group of matrices, but the identity is missing.")
    first = int(is_identity.nonzero()[0])
    ordered = torch.cat([identity[None], matrices[:first], matrices[first + 1 :]])
    copies = equal_matrices(ordered, ordered).triu(1)
    if bool(copies.any()):
        raise ValueError(f"Expected distinct matrices, got {int(copies.sum())} equal pair(s).")
    for one in ordered:
        inside = equal_matrices(one @ ordered, ordered).any(-1)
        if not bool(inside.all()):
            other = ordered[int((~inside).nonzero()[0])]
            raise ValueError(
                "Expected a group of matrices, but the product of two of them is missing: "
                f"{(one @ other).tolist()}. Add all products."
            )
    return ordered


def equal_matrices(left: Tensor, right: Tensor) -> Tensor:
    """Compare ``A x d x k`` with ``B x d x k`` matrices up to rounding, as an ``A x B`` mask."""
    size = torch.maximum(left.abs().max(), right.abs().max())
    gaps = torch.cdist(left.flatten(1), right.flatten(1), p=math.inf)
    return gaps <= _ROUNDING * torch.finfo(left.dtype).eps * size


def is_orthogonal(matrices: Tensor) -> bool:
    """Return whether all ``G x d x d`` matrices are orthogonal, up to rounding."""
    identity = torch.eye(matrices.shape[-1]).to(matrices)
    return bool(equal_matrices(matrices @ matrices.mT, identity[None]).all())


def permutes_axes(matrices: Tensor, directions: Tensor) -> bool:
    """Return whether ``G x d x d`` matrices permute ``L x d`` unit vectors up to their signs."""
    axes = torch.cat([directions, -directions]).to(matrices).unsqueeze(-1)
    turned = torch.einsum("gij,lj->gli", matrices, directions.to(matrices)).unsqueeze(-1)
    return all(bool(equal_matrices(each, axes).any(-1).all()) for each in turned)
