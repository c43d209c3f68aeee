"""Pieces of data in memory, or of any object that returns its pieces by number."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from torch import Tensor

from gp_distributions.sharding.digests import digest
from gp_distributions.sharding.pieces import read_piece


@dataclass(frozen=True, eq=False)
class HeldPiece:
    """A piece of an object with a method ``piece``.

    Attributes:
        data: The object.
        number: Number of the piece.
        name: Where the content lies, for messages; if empty, errors are raised as they are.
    """

    data: Any
    number: int
    name: str = ""

    @property
    def count(self) -> None:
        """Unknown until the piece is read."""
        return

    @property
    def dim(self) -> None:
        """Unknown until the piece is read."""
        return

    def remote(self, client: Any) -> tuple[SentPiece, list[Any]]:
        """Send the content of the piece, but not the other pieces."""
        return SentPiece(self.name, read_piece(self)), []

    def read(self, *inputs: Any) -> tuple[Any, ...]:
        """Read the distributions, their targets, and what else belongs to them."""
        found: tuple[Any, ...] = self.data.piece(self.number)
        return found

    def targets(self) -> Tensor | None:
        """Read the targets."""
        return read_piece(self)[1]

    def labels(self) -> npt.NDArray[Any] | None:
        """Read the labels."""
        return getattr(read_piece(self)[0], "labels", None)

    def describe(self, *, first: bool = True) -> Hashable:
        """Return a digest of the content."""
        X, *others = read_piece(self)
        rows = X if isinstance(X, Tensor) else X.pack()
        # The rows of mixed inputs have lost the units of numbers.
        return digest(rows, getattr(X, "encoding", None), *others)


@dataclass(frozen=True)
class SentPiece:
    """The content of a piece, on its way to a worker."""

    name: str
    content: tuple[Any, ...]

    def read(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the content."""
        return self.content
