"""Checks that the squares of coordinates and distances neither overflow nor underflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.measures.targets import safe_range
from gp_distributions.rows.clouds import drop_copies, join_rows

# Upper bound of the rounding errors of squared distances in the unit cube, in machine epsilons.
_ROUNDING = 1024
# Number of atoms that are checked at a time.
_PIECE = 2**20


def check_coordinates(distance: Distance, rows: Tensor) -> float:
    """Check that the squared coordinates of training clouds neither overflow nor underflow.

    Clouds that are all identical may have any scale.

    Args:
        distance: Distance that reads the rows.
        rows: A ``batch_shape x N x width`` tensor of the columns that the distance reads.

    Returns:
        The largest absolute coordinate or standard deviation; 0 if the distance does not read
        coordinates.

    Raises:
        ValueError: If the squares of the coordinates overflow or underflow.
    """
    if not distance.reads_coordinates:
        return 0.0
    largest = _largest_of(distance, rows)
    low, high = safe_range(rows.dtype)
    if largest and not low <= largest <= high and bool((rows != rows[..., :1, :]).any()):
        _raise("underflow" if largest < low else "overflow", largest, rows.dtype)
    return largest


def check_overflow(distance: Distance, rows: Tensor, other: Tensor) -> None:
    """Check that the squared coordinates of some of the training clouds do not overflow.

    Args:
        distance: Distance that reads the rows.
        rows: An ``N x width`` tensor of the columns that the distance reads.
        other: The row of another training cloud, ``1 x width``.

    Raises:
        ValueError: If the squares of the coordinates overflow, unless all rows equal the other.
    """
    if not distance.reads_coordinates:
        return
    largest = _largest_of(distance, rows)
    if largest <= safe_range(rows.dtype)[1]:
        return
    if rows.shape[-1] != other.shape[-1] or bool((rows != other).any()):
        _raise("overflow", largest, rows.dtype)


def _largest_of(distance: Distance, rows: Tensor) -> float:
    """Return the largest absolute coordinate or standard deviation in rows."""
    atoms, weights = distance.block.split(drop_copies(rows.detach()))
    atoms, weights = atoms.flatten(0, -3), weights.flatten(0, -2)
    return max(map(partial(_largest, distance.dim), *_pieces(atoms, weights)))


def _pieces(atoms: Tensor, weights: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Split ``C x n`` clouds into pieces, so that intermediate results take little memory."""
    size = max(1, _PIECE // weights.shape[-1])
    return atoms.split(size), weights.split(size)


def _largest(dim: int, atoms: Tensor, weights: Tensor) -> float:
    """Return the largest absolute coordinate or standard deviation of atoms of positive weight."""
    sizes = torch.where(weights.unsqueeze(-1) > 0, atoms, 0).abs()
    sizes[..., dim:].sqrt_()  # entries of covariance matrices
    return sizes.max().item()


def check_distances(distance: Distance, rows: Tensor, squared: Tensor) -> None:
    """Check that squared distances between training clouds neither overflow nor underflow.

    Distances of 0 are valid if the clouds coincide.

    Args:
        distance: Distance that reads the rows.
        rows: A ``batch_shape x N x width`` tensor of the columns that the distance reads.
        squared: The ``batch_shape x N x N`` squared distances between the rows.

    Raises:
        ValueError: If squares of coordinates or squared distances overflow or underflow.
    """
    low, high = safe_range(rows.dtype)
    if low**2 <= squared.max().item() <= high**2:
        return
    largest = check_coordinates(distance, rows)
    if not largest:
        return
    if not bool((squared <= high**2).all()):  # or NaN
        _raise("overflow", largest, rows.dtype)
    if not bool(squared.any()):
        # Scaling by a power of two is exact, so that clouds that coincide still do.
        atoms, weights = distance.block.split(rows.detach())
        factors = torch.full_like(atoms[..., :1, :], 2.0 ** -math.frexp(largest)[1])
        factors[..., distance.dim :].square_()
        atoms = atoms * factors
        weighted = distance.block.atom_columns is not None
        rescaled = join_rows(atoms, weights) if weighted else atoms.flatten(-2)
        rounding = _ROUNDING * torch.finfo(rows.dtype).eps
        if bool((distance.squared(rescaled) > rounding).any()):
            _raise("underflow", largest, rows.dtype)


def _raise(verb: str, largest: float, dtype: torch.dtype) -> None:
    scale = f"{largest:.0e}" if math.isfinite(largest) else "..."
    raise ValueError(
        f"The squared distances between the training clouds {verb} in {dtype} (largest coordinate "
        f"{largest:.3g}). Scale the clouds, for example with X.normalize(scale={scale}) or with "
        f"input_transform=NormalizeClouds.from_data(X, scale={scale})."
    )
