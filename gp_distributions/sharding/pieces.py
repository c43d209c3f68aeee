"""A piece of a data set: a description, small enough to be sent anywhere, of clouds to be read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

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


class Readable(Protocol):
    """What can be read in any process."""

    @property
    def name(self) -> str:
        """Where the content lies, for messages; if empty, errors are raised as they are."""

    def read(self, *inputs: Any) -> tuple[Any, ...]:
        """Read distributions, their targets, and what else belongs to them."""


class Piece(Readable, Protocol):
    """Some distributions of a data set, read where and when they are needed."""

    @property
    def count(self) -> int | None:
        """Number of distributions, or None if it is unknown until the piece is read."""

    @property
    def dim(self) -> int | None:
        """Dimension of the atoms, or None if it is unknown until the piece is read."""

    def remote(self, client: Any) -> tuple[Readable, list[Any]]:
        """Return what to send to a cluster, and futures whose results ``read`` takes there."""

    def targets(self) -> Tensor | None:
        """Read the targets alone."""

    def labels(self) -> npt.NDArray[Any] | None:
        """Read the labels of the distributions alone."""

    def describe(self, *, first: bool = True) -> Hashable:
        """Return what identifies the content of the piece, the same in every process.

        Args:
            first: Whether the piece is the first of its data. Others may be described without being
                computed, by less than their content.
        """


def read_piece(piece: Readable, *inputs: Any) -> tuple[Any, ...]:
    """Read a piece.

    Raises:
        PieceError: If it cannot be read; the message names it.
    """
    try:
        return piece.read(*inputs)
    except Exception as error:
        raise_named(piece.name, error)


def raise_named(name: str, error: Exception) -> NoReturn:
    """Raise an error that names a piece, or the error itself if it does so or the name is empty.

    Raises:
        PieceError: If the name is not empty.
    """
    named = failure(name, error) if name else error
    if named is error:
        raise error
    raise named from error


def failure(name: str, error: BaseException) -> PieceError:
    """Return the error to raise if a piece of this name led to another error."""
    text = str(error) or type(error).__name__
    if isinstance(error, PieceError) and name in text:
        return error
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return PieceError(f"{name}: {kind}{text}" if name else f"{kind}{text}")


def descriptions(pieces: Sequence[Piece]) -> list[Hashable]:
    """Return what identifies the content of all pieces of a data set, the same in every process."""
    return [piece.describe(first=number == 0) for number, piece in enumerate(pieces)]


def check_alike(part: object, first: object, name: str, what: str) -> None:
    """Check that a piece has targets, or labels, if and only if the first piece has them.

    Args:
        part: Those of the piece, or None.
        first: Those of the first piece, or None.
        name: Name of the piece.
        what: What they are, for the message.

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
