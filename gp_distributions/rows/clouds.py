"""The layout of a row: a weighted cloud of ``m`` atoms in ``d`` dimensions as one flat vector.

A row lists the atoms one after the other; each atom takes ``d`` columns for its coordinates and one for
its weight. Atoms of weight zero are padding. GPyTorch and BoTorch see clouds only as rows.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from gp_distributions.rows.tensors import (
    at,
    copy_filled,
    is_tracked,
    is_wide,
    resized,
    untouched_zeros,
)

# Atoms and weights of clouds.
Cloud: TypeAlias = tuple[Tensor, Tensor]


def join_rows(points: Tensor, weights: Tensor, factors: Tensor | None = None) -> Tensor:
    """Convert clouds to rows.

    Args:
        points: A ``batch_shape x m x d`` tensor of atoms.
        weights: A ``batch_shape x m`` tensor of weights.
        factors: Factors by which to multiply the ``d`` coordinates.

    Returns:
        A ``batch_shape x m*(d+1)`` tensor.
    """
    if is_wide(weights) and not is_tracked(points):
        rows = untouched_zeros((*weights.shape, points.shape[-1] + 1), points)
        copy_filled(points, rows[..., :-1], axes=2, factors=factors)
        copy_filled(weights, rows[..., -1])
        return rows.flatten(-2)
    points = points if factors is None else points * factors
    return torch.cat([points, weights.unsqueeze(-1)], dim=-1).flatten(-2)


def split_rows(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return views of the atoms and weights that rows hold; this is the inverse of :func:`join_rows`.

    Args:
        rows: A ``batch_shape x m*(d+1)`` tensor.
        dim: Dimension ``d`` of the atoms.

    Returns:
        The atoms, ``batch_shape x m x d``, and weights, ``batch_shape x m``.

    Raises:
        ValueError: If the width of the rows is not a positive multiple of ``d + 1``.
    """
    width = rows.shape[-1] if rows.dim() else 0
    if width == 0 or width % (dim + 1):
        advice = " Coordinates alone are not rows: pass PointClouds(points)." * (width == dim)
        raise ValueError(
            f"Expected rows whose width is a positive multiple of dim + 1 = {dim + 1} (each atom has "
            f"{dim} coordinates and a weight), got a tensor of shape {tuple(rows.shape)}.{advice}"
        )
    atoms = rows.unflatten(-1, (width // (dim + 1), dim + 1))
    return atoms[..., :dim], atoms[..., dim]


def rows_at(rows: Tensor, index: Tensor) -> Tensor:
    """Return some rows of a ``batch_shape x N x width`` tensor, those of the given numbers."""
    if rows.dim() == 2 and is_wide(rows):
        return at(rows, index.tolist())
    return rows.index_select(-2, index)


def pad_rows(rows: Tensor, width: int) -> Tensor:
    """Pad rows to ``width`` columns with atoms of weight zero, which do not change distances."""
    if width == rows.shape[-1]:
        return rows
    return resized(drop_copies(rows), width).expand(*rows.shape[:-1], width)


def random_order(rows: Tensor, *, seed: int = 0) -> Tensor:
    """Draw an order of clouds that depends on what they are, not on the order in which they come.

    Args:
        rows: A ``batch_shape x N x width`` tensor. If there are batch axes, the first batch counts.
        seed: Random seed.

    Returns:
        The numbers ``0, ..., N - 1`` in random order, on the device of the rows.
    """
    first = drop_copies(rows.detach())
    first = first.flatten(0, -3)[0] if first.dim() > 2 else first
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(first.shape[-1], generator=generator, dtype=torch.float64)
    keys = (first.double() * weights.to(first.device)).sum(-1)  # row by row, whatever their place
    order = torch.randperm(len(first), generator=generator)
    return keys.argsort(stable=True)[order.to(first.device)]


def drop_copies(rows: Tensor) -> Tensor:
    """Shrink expanded batch axes to size one, and remove leading batch axes of size one.

    Args:
        rows: A ``batch_shape x N x m*(d+1)`` tensor.

    Returns:
        A view that broadcasts to ``rows`` and has the same last two axes.
    """
    for axis in range(rows.dim() - 2):
        if rows.stride(axis) == 0:
            rows = rows.narrow(axis, 0, 1)
    while rows.dim() > 2 and rows.shape[0] == 1:
        rows = rows.squeeze(0)
    return rows


def expand_batches(values: Tensor, x1: Tensor, x2: Tensor, *, diag: bool) -> Tensor:
    """Expand what is computed for pairs of rows to the batch axes that :func:`drop_copies` removes.

    Args:
        values: A ``... x N x M`` tensor, or ``... x N`` with ``diag``.
        x1: A ``batch_shape x N x width`` tensor.
        x2: A ``batch_shape x M x width'`` tensor.
        diag: Whether there is one value for each pair of corresponding rows.
    """
    ends = values.shape[-1 if diag else -2 :]
    own = values.shape[: -len(ends)]
    batch_shape = torch.broadcast_shapes(own, x1.shape[:-2], x2.shape[:-2])
    return values.expand(*batch_shape, *ends)


def equal_rows(x1: Tensor, x2: Tensor, *, diag: bool = False) -> Tensor:
    """Find equal pairs of rows. Rows are compared entry by entry: padding and the order of atoms matter.

    Args:
        x1: A ``batch_shape x N x width`` tensor.
        x2: A ``batch_shape x M x width'`` tensor.
        diag: Whether to compare only corresponding rows, with ``M = N``.

    Returns:
        A boolean tensor that broadcasts to ``batch_shape x N x M``, or ``batch_shape x N`` with
        ``diag``, and is ``True`` where rows are equal.
    """
    x1, x2 = drop_copies(x1.detach()), drop_copies(x2.detach())
    if x1.shape[-1] != x2.shape[-1] or x1.dtype != x2.dtype:
        return torch.zeros((), dtype=torch.bool, device=x1.device)
    if diag:
        return (x1 == x2).all(-1)
    alike = x1[..., :1] == x2[..., :1].mT
    if not bool(alike.any()):  # this decides nearly all cases
        return alike
    both = torch.cat([x1.flatten(0, -2), x2.flatten(0, -2)])
    numbers = both.unique(dim=0, return_inverse=True)[1]
    first, second = numbers.split([x1.shape[:-1].numel(), x2.shape[:-1].numel()])
    return first.reshape(*x1.shape[:-1], 1) == second.reshape(*x2.shape[:-2], 1, x2.shape[-2])


def drop_padding(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Cut all clouds to the size of the largest, without loss of atoms of positive weight.

    Args:
        points: A ``batch_shape x m x d`` tensor of atoms.
        weights: A ``batch_shape x m`` tensor of weights.

    Returns:
        The atoms, ``batch_shape x n x d``, and weights, ``batch_shape x n``, where ``n <= m`` is the
        number of atoms of positive weight in the largest cloud.
    """
    padding = weights == 0
    if not padding.numel():
        return points, weights
    size = int((~padding).sum(-1).max())
    if size == weights.shape[-1]:
        return points, weights
    if not bool(padding[..., size:].all()):
        order = padding.to(torch.uint8).argsort(dim=-1, stable=True)
        points = points.gather(-2, order.unsqueeze(-1).expand(points.shape))
        weights = weights.gather(-1, order)
    return points[..., :size, :], weights[..., :size]


def sizes(weights: Tensor) -> Tensor:
    """Return the number of atoms of each cloud without padding, unless the weights require a gradient.

    The weights of padding have a gradient, too.
    """
    counted = torch.ones_like(weights) if is_tracked(weights) else weights > 0
    return counted.sum(-1).long()


def by_size(points: Tensor, weights: Tensor, atoms: int) -> tuple[list[Cloud], Tensor | None]:
    """Group clouds of similar size, and remove their padding as :func:`sizes` does.

    Args:
        points: A ``C x m x d`` tensor of atoms.
        weights: A ``C x m`` tensor of weights.
        atoms: Number of atoms in a group of several clouds, at most.

    Returns:
        The groups, and the index that restores the order of the clouds, or ``None`` if the order is
        unchanged.
    """
    counts, order = sizes(weights), None
    if bool((counts < weights.shape[-1]).any()):
        order = counts.argsort(stable=True)
        points, weights, counts = points[order], weights[order], counts[order]
    lengths: list[int] = []
    for count in counts.tolist():
        if lengths and (lengths[-1] + 1) * count <= atoms:
            lengths[-1] += 1
        else:
            lengths.append(1)
    groups = list(zip(points.split(lengths), weights.split(lengths), strict=True))
    if order is None:
        return groups, None
    return [drop_padding(*group) for group in groups], order.argsort()


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype, device and content."""
    alike = (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
    return alike and torch.equal(a, b)
