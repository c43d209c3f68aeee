"""A piece of a data set: a description, small enough to be sent anywhere, of clouds to be read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.measures.arrays import Labels
from gp_distributions.measures.point_clouds import PointClouds

# The clouds of a piece and their targets, ``B`` or ``B x outputs``, in double precision.
Contents: TypeAlias = tuple[PointClouds, Tensor | None]

#: Largest number of atoms in a piece, padding included, unless a single bag has more.
PIECE_ATOMS = 2**21


class PieceError(ValueError):
    """A piece of a :class:`ShardedClouds` cannot be read or used; the message names it and its file.

    Example:
        >>> from gp_distributions.sharding import PieceError
        >>> issubclass(PieceError, ValueError)
        True
    """


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Let errors within a ``with`` block name a piece; without a name they stay as they are.

    Raises:
        PieceError: If there is an error and a name.
    """
    try:
        yield
    except Exception as error:
        if not name or (isinstance(error, PieceError) and name in str(error)):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise PieceError(f"{name}: {kind}{str(error) or type(error).__name__}") from error


class Piece:
    """Some distributions of a data set, read where and when they are needed."""

    #: Where the content lies, for messages; if empty, errors are raised as they are.
    name: str = ""
    #: Number of distributions, or None if it is unknown until the piece is read.
    count: int | None = None
    #: Dimension of the atoms, or None if it is unknown until the piece is read.
    dim: int | None = None

    def read(self, *inputs: Any) -> tuple[Any, ...]:
        """Read distributions, their targets, and what else belongs to them.

        Args:
            *inputs: What :meth:`remote` returned beside the piece, or the results of its futures.
        """
        raise NotImplementedError

    def remote(self, client: Any) -> tuple[Piece, list[Any]]:
        """Return what to send to a cluster, and what ``read`` takes there, or futures of it."""
        return self, []

    def targets(self) -> Tensor | None:
        """Read the targets alone."""
        return self.read()[1]

    def labels(self) -> Labels | None:
        """Read the labels of the distributions alone."""
        return getattr(self.read()[0], "labels", None)

    def describe(self, *, first: bool = True) -> Any:
        """Return what identifies the content of the piece, the same in every process.

        Args:
            first: Whether the piece is the first of its data. Others may be described without being
                computed, by less than their content.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class HeldPiece(Piece):
    """A piece of an object with a method ``piece``.

    Attributes:
        data: The object; None on a worker, which is given the content.
        number: Number of the piece.
        name: Where the content lies, for messages.
    """

    data: Any
    number: int
    name: str = ""

    def remote(self, client: Any) -> tuple[Piece, list[Any]]:
        """Send the content of the piece, but not the other pieces."""
        with named(self.name):
            return replace(self, data=None), list(self.read())

    def read(self, *inputs: Any) -> tuple[Any, ...]:
        """Read the distributions, their targets, and what else belongs to them."""
        return inputs or self.data.piece(self.number)

    def describe(self, *, first: bool = True) -> Any:
        """Return the content."""
        X, *others = self.read()
        rows = X if isinstance(X, Tensor) else X.pack()
        # The rows of mixed inputs have lost the units of numbers.
        return (rows, getattr(X, "encoding", None), *others)


@dataclass(frozen=True, eq=False)
class BagPiece(Piece):
    """Consecutive bags whose atoms lie one after another.

    Attributes:
        offsets: The ``B + 1`` atoms at which bags begin, and their number.
        names: Labels of the bags, or None.
        given: Targets of the bags, or None.
    """

    offsets: npt.NDArray[np.int64]
    names: Any
    given: Tensor | None

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of bags."""
        return len(self.offsets) - 1

    def targets(self) -> Tensor | None:
        """Return the targets."""
        return self.given

    def labels(self) -> Labels | None:
        """Return the labels."""
        return self.names


def descriptions(pieces: Sequence[Piece]) -> list[Any]:
    """Return what identifies the content of all pieces of a data set, the same in every process."""
    found = []
    for number, piece in enumerate(pieces):
        with named(piece.name):
            found.append(piece.describe(first=number == 0))
    return found


def check_alike(part: object, first: object, name: str, what: str) -> None:
    """Check that a piece has targets, or labels, if and only if the first piece has them.

    Raises:
        PieceError: If only one of the two pieces has them.
    """
    if (part is None) != (first is None):
        found, expected = ("no ", "") if part is None else ("", "no ")
        raise PieceError(
            f"{name}: expected {expected}{what}, as in the first piece, got {found}{what}. Give {what} "
            "to all pieces or to none."
        )


def cut(sizes: npt.NDArray[np.int64], limit: int) -> list[tuple[int, int]]:
    """Divide bags into consecutive ranges of at most ``limit`` atoms, padding included.

    Args:
        sizes: Numbers of atoms of the ``B`` bags.
        limit: Largest number of bags times largest bag in a range. A bag of more atoms is alone.

    Returns:
        The first bag of each range, and the one after its last.
    """
    ranges, start = [], 0
    while start < len(sizes):
        window = sizes[start : start + 1 + limit // max(1, int(sizes[start]))]
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        count = max(1, int(np.searchsorted(padded, limit, side="right")))
        ranges.append((start, start + count))
        start += count
    return ranges
