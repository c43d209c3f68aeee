"""The layout of rows: the distributions that lie in a row, and the columns that hold each.

A row is one flat vector, all that GPyTorch and BoTorch see of its distributions. A block of columns
holds one distribution:

=============  ============================================================================
``clouds``     atoms in turn, each ``d`` coordinates and a weight; weight zero is padding
``gaussians``  a mean of ``d`` coordinates, then the covariance row by row
``mixtures``   components in turn, each a mean, a covariance and a weight; zero is padding
``indices``    one whole number
=============  ============================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from gp_distributions.rows.clouds import split_rows

_WEIGHTED = {"clouds": True, "gaussians": False, "mixtures": True, "indices": False}


@dataclass(frozen=True)
class Block:
    """The columns of a row that hold one distribution.

    Attributes:
        kind: ``"clouds"``, ``"gaussians"``, ``"mixtures"`` or ``"indices"``.
        dim: Dimension ``d``.
        columns: Columns of the row, or ``None`` for all of them.
    """

    kind: str
    dim: int
    columns: tuple[int, ...] | None = None

    @property
    def atom_dim(self) -> int:
        """Number of columns of an atom without its weight."""
        return self.dim if self.kind in ("clouds", "indices") else self.dim + self.dim**2

    @property
    def atom_columns(self) -> int | None:
        """Number of columns of an atom with its weight, or ``None`` where a row is one atom."""
        return self.atom_dim + 1 if _WEIGHTED[self.kind] else None

    def select(self, rows: Tensor) -> Tensor:
        """The columns of a ``batch_shape x N x width`` tensor that hold the distribution."""
        return rows if self.columns is None else rows[..., list(self.columns)]

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Reads the atoms and weights of rows that hold nothing else.

        Args:
            rows: A ``batch_shape x N x width`` tensor.

        Returns:
            Atoms, ``batch_shape x N x m x atom_dim``, and weights, ``batch_shape x N x m``.

        Raises:
            ValueError: If the width does not fit.
        """
        if _WEIGHTED[self.kind]:
            return split_rows(rows, self.atom_dim)
        if rows.dim() == 0 or rows.shape[-1] != self.atom_dim:
            expected = "1 (an index)"
            if self.kind == "gaussians":
                expected = f"d + d*d = {self.atom_dim} (a mean and a row-major covariance)"
            raise ValueError(
                f"Expected rows of width {expected}, got a tensor of shape {tuple(rows.shape)}."
            )
        return rows.unsqueeze(-2), rows.new_ones(*rows.shape[:-1], 1)


def chunks(weights: Tensor, size: int, *, by_atoms: bool) -> Iterator[slice | Tensor]:
    """Indices of the clouds to process together, so that memory is bounded.

    Args:
        weights: A ``C x m`` tensor of weights, where zero is padding.
        size: Number of clouds in a chunk.
        by_atoms: Whether clouds with similar numbers of atoms share a chunk, which then needs less
            padding than all clouds together.

    Yields:
        A slice or a tensor of indices.
    """
    sizes = (weights > 0).sum(-1)
    if by_atoms and bool((sizes != sizes[0]).any()):
        yield from sizes.argsort().split(size)
    else:
        yield from (slice(start, start + size) for start in range(0, len(weights), size))


def check_weights(weights: Tensor) -> None:
    """Raises a ``ValueError`` that names the first row whose weights are not valid."""
    bad = ~((weights >= 0).all(-1) & (weights.sum(-1) > 0) & weights.isfinite().all(-1))
    if bool(bad.any()):
        where = bad.nonzero()[0].tolist()
        raise ValueError(
            "Expected rows with finite, non-negative weights that are not all zero, but row "
            f"{where[0] if len(where) == 1 else tuple(where)} has the weights "
            f"{weights[bad][0].tolist()}. Make rows with PointClouds.pack(), and scale coordinates "
            "with PointClouds.normalize, not the columns of rows."
        )


def normalized(weights: Tensor) -> Tensor:
    """Weights that sum to one in each cloud."""
    check_weights(weights)
    return weights / weights.sum(-1, keepdim=True)
