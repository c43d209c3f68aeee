"""Which columns of a row a block takes: a fixed choice, or slots that repeat to the end of the row.

A row that holds several inputs begins with the blocks of fixed width and ends with a tail of slots. Each
slot holds one atom, with its weight, of every block of variable size. Zeros at the end of a row are thus
atoms of weight zero of each of these blocks, and rows can be padded without knowing what they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from gp_distributions.rows.clouds import drop_copies


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
