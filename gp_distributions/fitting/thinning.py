"""Subsets of the atoms of clouds, for computations that do not need all of them."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.rows.clouds import drop_padding, join_rows, split_rows
from gp_distributions.rows.layout import Slots


def thinned(rows: Tensor, kernel: Kernel, atoms: int, *, seed: int = 0) -> Tensor:
    """Reduce each cloud in rows to a random subset of at most ``atoms`` of its atoms.

    The atoms that are drawn have equal weights. An atom of weight ``w`` is drawn ``atoms * w`` times on
    average: this number, or the next smaller or larger integer. So atoms of equal weight are drawn at
    most once, and the expected value of every mean over the subset is that over the cloud. Clouds that
    are not larger stay as they are.

    Args:
        rows: An ``... x N x width`` tensor of rows.
        kernel: The kernel that reads the rows. Clouds in a fixed choice of columns (``active_dims``)
            stay as they are.
        atoms: Largest number of atoms.
        seed: Random seed.

    Returns:
        An ``... x N x width'`` tensor of rows that the kernel reads.

    Source: Madow 1949 (systematic sampling with probabilities proportional to size).
    """
    blocks = {block for _, block in distribution_kernels(kernel)}
    whole = [block for block in blocks if block.columns is None and block.kind == "clouds"]
    slots = {block.columns: block for block in blocks if isinstance(block.columns, Slots)}
    generator = torch.Generator().manual_seed(seed)
    if whole and len(blocks) == 1:
        return join_rows(*_subset(*split_rows(rows, whole[0].dim), atoms, generator))
    if not slots:
        return rows
    first = next(iter(slots))
    parts: dict[Slots, Tensor] = {}
    for columns, block in sorted(slots.items(), key=lambda item: item[0].offset):
        points, weights = split_rows(columns.select(rows), block.atom_dim)
        if block.kind == "clouds":
            points, weights = _subset(points, weights, atoms, generator)
        else:
            points, weights = drop_padding(points, weights)
        parts[columns] = torch.cat([points, weights.unsqueeze(-1)], -1)
    count = max(part.shape[-2] for part in parts.values())
    tail = rows.new_zeros(*rows.shape[:-1], count, first.width)
    for columns, part in parts.items():
        tail[..., : part.shape[-2], columns.offset : columns.offset + columns.size] = part
    return torch.cat([rows[..., : first.start], tail.flatten(-2)], dim=-1)


def thinned_along(rows: Tensor, dim: int, coordinate: int, atoms: int) -> Tensor:
    """Reduce each larger cloud in rows to ``atoms`` atoms at even quantiles of a coordinate.

    Args:
        rows: An ``... x N x m*(d+1)`` tensor of rows.
        dim: Dimension ``d`` of the atoms.
        coordinate: Number of the coordinate, whose distribution hardly changes.
        atoms: Largest number of atoms, which have equal weights.
    """
    points, weights = drop_padding(*split_rows(rows, dim))
    if weights.shape[-1] <= atoms:
        return rows
    return join_rows(*_taken(points, weights, atoms, points[..., coordinate].argsort(-1), 0.5))


def _subset(
    points: Tensor, weights: Tensor, atoms: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw ``atoms`` atoms of each larger cloud by systematic sampling of the atoms in random order."""
    points, weights = drop_padding(points, weights)
    if weights.shape[-1] <= atoms:
        return points, weights
    order = torch.rand(weights.shape, generator=generator, dtype=torch.float64).argsort(-1)
    start = torch.rand(*weights.shape[:-1], 1, generator=generator, dtype=torch.float64)
    return _taken(points, weights, atoms, order.to(weights.device), start)


def _taken(
    points: Tensor, weights: Tensor, atoms: int, order: Tensor, start: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Take atoms of each larger cloud at even steps of cumulative weight, in an order."""
    cumulative = weights.double().gather(-1, order).cumsum(-1)
    levels = (start + torch.arange(atoms)).to(weights.device) / atoms * cumulative[..., -1:]
    found = torch.searchsorted(cumulative, levels, right=True)
    # A level may be rounded to the total weight, which the last atom of positive weight reaches.
    last = torch.searchsorted(cumulative, cumulative[..., -1:].contiguous())
    chosen = order.gather(-1, torch.minimum(found, last))
    drawn = torch.full_like(chosen, 1.0, dtype=weights.dtype) / atoms
    small = (weights > 0).sum(-1, keepdim=True) <= atoms
    if bool(small.any()):
        largest = weights.topk(atoms, dim=-1)
        chosen = torch.where(small, largest.indices, chosen)
        drawn = torch.where(small, largest.values, drawn)
    return points.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, points.shape[-1])), drawn
