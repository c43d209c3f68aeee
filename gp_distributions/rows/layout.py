"""The layout of rows: what kind of distribution a row holds, and in which columns.

A row is one flat vector: GPyTorch and BoTorch see distributions only as rows. A block of columns holds
one distribution, of one of these kinds:

=============  ============================================================================
``clouds``     atoms, each ``d`` coordinates and a weight; weight zero is padding
``gaussians``  a mean of ``d`` coordinates and a row-major covariance
``mixtures``   components, each a mean, a covariance and a weight; weight zero is padding
``indices``    one integer, as a float
=============  ============================================================================

A row that holds several inputs begins with the blocks of fixed width and ends with a tail of slots. Each
slot holds one atom, with its weight, of every block of variable size. Zeros at the end of a row are thus
atoms of weight zero of each of these blocks, and rows can be padded without knowing what they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from gp_distributions.rows.clouds import drop_copies, join_rows, split_rows


def join_gaussians(mean: Tensor, covariance: Tensor) -> Tensor:
    """Convert Gaussians to rows.

    Args:
        mean: A ``batch_shape x d`` tensor of means.
        covariance: A ``batch_shape x d x d`` tensor of covariances.

    Returns:
        A ``batch_shape x (d+d*d)`` tensor.
    """
    return torch.cat([mean, covariance.flatten(-2)], dim=-1)


def split_gaussians(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return views of the means and covariances in rows: the inverse of :func:`join_gaussians`.

    Args:
        rows: A ``batch_shape x (d+d*d)`` tensor.
        dim: Dimension ``d`` of the space.

    Returns:
        The means, ``batch_shape x d``, and covariances, ``batch_shape x d x d``.

    Raises:
        ValueError: If the width of the rows is not ``d + d*d``.
    """
    width = dim + dim * dim
    if not rows.dim() or rows.shape[-1] != width:
        raise ValueError(
            f"Expected rows of width dim + dim^2 = {width} (a mean of {dim} coordinates and a "
            f"row-major covariance), got a tensor of shape {tuple(rows.shape)}."
        )
    return rows[..., :dim], rows[..., dim:].unflatten(-1, (dim, dim))


def join_mixtures(mean: Tensor, covariance: Tensor, weights: Tensor) -> Tensor:
    """Convert mixtures to rows.

    Args:
        mean: A ``batch_shape x K x d`` tensor of the components' means.
        covariance: A ``batch_shape x K x d x d`` tensor of the components' covariances.
        weights: A ``batch_shape x K`` tensor of the components' weights.

    Returns:
        A ``batch_shape x K*(d+d*d+1)`` tensor.
    """
    return join_rows(join_gaussians(mean, covariance), weights)


def split_mixtures(rows: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of the components and weights in rows: the inverse of :func:`join_mixtures`.

    Args:
        rows: A ``batch_shape x K*(d+d*d+1)`` tensor.
        dim: Dimension ``d`` of the space.

    Returns:
        The means, ``batch_shape x K x d``, covariances, ``batch_shape x K x d x d``, and weights,
        ``batch_shape x K``.

    Raises:
        ValueError: If the width of the rows is not a positive multiple of ``d + d*d + 1``.
    """
    component = dim + dim * dim + 1
    width = rows.shape[-1] if rows.dim() else 0
    if width == 0 or width % component:
        raise ValueError(
            f"Expected rows whose width is a positive multiple of dim + dim^2 + 1 = {component} "
            f"(each component has a mean of {dim} coordinates, a row-major covariance and a weight), "
            f"got a tensor of shape {tuple(rows.shape)}."
        )
    gaussians, weights = split_rows(rows, component - 1)
    return *split_gaussians(gaussians, dim), weights


@dataclass(frozen=True)
class Slots:
    """Columns that occur in every slot of the tail of a row, however wide the row is.

    Attributes:
        start: Column at which the tail begins.
        width: Number of columns of a slot.
        offset: First of the columns within a slot.
        size: Number of the columns within a slot.
    """

    start: int
    width: int
    offset: int
    size: int

    def select(self, rows: Tensor) -> Tensor:
        """Select the columns of a ``batch_shape x N x width`` tensor; they are a view if they are all.

        Raises:
            ValueError: If the tail is not a positive number of whole slots.
        """
        self._check(rows.shape[-1])
        if self.size == self.width:
            return rows.narrow(-1, self.start, rows.shape[-1] - self.start)
        once = drop_copies(rows)
        slots = once[..., self.start :].unflatten(-1, (-1, self.width))
        chosen = slots[..., self.offset : self.offset + self.size].flatten(-2)
        return chosen.expand(*rows.shape[:-1], -1)

    def numbers(self, width: int) -> tuple[int, ...]:
        """Return the numbers of the columns in rows of the given width."""
        self._check(width)
        firsts = range(self.start + self.offset, width, self.width)
        return tuple(first + i for first in firsts for i in range(self.size))

    def _check(self, width: int) -> None:
        if width <= self.start or (width - self.start) % self.width:
            raise ValueError(
                f"Expected rows of {self.start} columns and then a positive number of slots of "
                f"{self.width} columns each, got rows of {width} columns. Make rows with "
                "MixedInputs.pack."
            )


Columns: TypeAlias = tuple[int, ...] | Slots | None


def numbers_of(columns: Columns, width: int) -> tuple[int, ...]:
    """Return the numbers of columns in rows of the given width; ``None`` stands for all columns."""
    if columns is None:
        return tuple(range(width))
    return columns.numbers(width) if isinstance(columns, Slots) else columns


def select_columns(rows: Tensor, columns: Columns) -> Tensor:
    """Select columns of a ``batch_shape x N x width`` tensor, as a view where possible."""
    if columns is None:
        return rows
    if isinstance(columns, Slots):
        return columns.select(rows)
    first, size = columns[0], len(columns)
    if columns == tuple(range(first, first + size)):
        return rows.narrow(-1, first, size)
    return rows.index_select(-1, torch.tensor(columns, device=rows.device))


# Kinds of rows that consist of a single atom without a weight, and what that atom is.
_SINGLE = {"gaussians": "a mean and a row-major covariance", "indices": "an index"}


@dataclass(frozen=True)
class Block:
    """The columns of a row that hold one distribution.

    Attributes:
        kind: Kind of distribution: ``"clouds"``, ``"gaussians"``, ``"mixtures"`` or ``"indices"``.
        dim: Dimension ``d`` of the space.
        columns: Numbers of the columns; the columns of each slot, in rows of any width; or ``None`` if
            the distribution takes the whole row.
    """

    kind: str
    dim: int
    columns: Columns = None

    @property
    def atom_dim(self) -> int:
        """Number of columns that an atom takes, without its weight."""
        return self.dim if self.kind in ("clouds", "indices") else self.dim + self.dim**2

    @property
    def atom_columns(self) -> int | None:
        """Number of columns that an atom and its weight take; ``None`` if a row is a single atom."""
        return None if self.kind in _SINGLE else self.atom_dim + 1

    def select(self, rows: Tensor) -> Tensor:
        """Select the columns of a ``batch_shape x N x width`` tensor that hold the distribution.

        The result is a view where possible.
        """
        return select_columns(rows, self.columns)

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the atoms and weights of rows that hold only this distribution.

        Args:
            rows: A ``batch_shape x N x width`` tensor.

        Returns:
            Atoms, ``batch_shape x N x m x atom_dim``, and weights, ``batch_shape x N x m``.

        Raises:
            ValueError: If the rows have the wrong width.
        """
        if self.kind not in _SINGLE:
            return split_rows(rows, self.atom_dim)
        if rows.dim() == 0 or rows.shape[-1] != self.atom_dim:
            raise ValueError(
                f"Expected rows of width {self.atom_dim} ({_SINGLE[self.kind]} each), got a tensor of "
                f"shape {tuple(rows.shape)}."
            )
        return rows.unsqueeze(-2), rows.new_ones(*rows.shape[:-1], 1)

    def join(self, atoms: Tensor, weights: Tensor, factors: Tensor | None = None) -> Tensor:
        """Return rows of atoms, multiplied by factors, and weights: the inverse of :meth:`split`."""
        if self.kind not in _SINGLE:
            return join_rows(atoms, weights, factors)
        return (atoms if factors is None else atoms * factors).squeeze(-2)


def chunks(weights: Tensor, size: int, *, by_atoms: bool) -> Iterator[slice | Tensor]:
    """Split clouds into chunks that are processed one at a time, to bound memory.

    Args:
        weights: A ``C x m`` tensor of weights. Atoms of weight zero are padding.
        size: Number of clouds in a chunk.
        by_atoms: Whether to put clouds with similar numbers of atoms into the same chunk, so that a
            chunk needs less padding than all clouds together.

    Yields:
        A slice or a tensor of indices that selects the clouds of the next chunk.
    """
    sizes = (weights > 0).sum(-1)
    if by_atoms and bool((sizes != sizes[0]).any()):
        yield from sizes.argsort().split(size)
    else:
        yield from (slice(start, start + size) for start in range(0, len(weights), size))


def check_weights(weights: Tensor) -> None:
    """Raise a ``ValueError`` that names the first row with invalid weights."""
    total = weights.sum(-1)  # finite if and only if all weights are
    bad = ~((weights.amin(-1) >= 0) & (total > 0) & total.isfinite())
    if bool(bad.any()):
        where = bad.nonzero()[0].tolist()
        moved = (
            " An optimiser has moved them: inducing rows need learn_inducing_locations=False."
            if weights.requires_grad
            else ""
        )
        raise ValueError(
            "Expected rows with finite, non-negative weights that are not all zero, but row "
            f"{where[0] if len(where) == 1 else tuple(where)} has the weights "
            f"{weights[bad][0].tolist()}. Create rows with PointClouds.pack(), and scale coordinates "
            f"with PointClouds.normalize rather than the columns of the rows.{moved}"
        )


def normalized(weights: Tensor) -> Tensor:
    """Check weights, and scale them to sum to one in each cloud."""
    check_weights(weights)
    return weights / weights.sum(-1, keepdim=True)
