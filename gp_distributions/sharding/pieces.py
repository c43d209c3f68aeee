"""Pieces of a data set: descriptions, small enough to be sent anywhere, of clouds to be read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.predictions import refuse_mask

# The clouds of a piece and their targets, ``B`` or ``B x outputs``, in double precision.
Contents: TypeAlias = tuple[PointClouds, Tensor | None]


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

    def read(self) -> tuple[Any, ...]:
        """Read distributions, their targets, and what else belongs to them."""
        raise NotImplementedError

    def sent(self) -> Piece:
        """Return what a worker reads in place of the piece."""
        return self

    def targets(self) -> Tensor | None:
        """Read the targets alone."""
        return self.read()[1]

    def labels(self) -> Labels | None:
        """Read the labels of the distributions alone."""
        return getattr(self.read()[0], "labels", None)


@dataclass(frozen=True, eq=False)
class FunctionPiece(Piece):
    """What a function of the user returns.

    Attributes:
        function: The function, which returns clouds, or clouds and targets.
        name: Where the content lies, for messages.
    """

    function: Callable[[], Any]
    name: str

    def read(self) -> Contents:
        """Call the function and check what it returns."""
        value = self.function()
        clouds, targets = value if isinstance(value, tuple) else (value, None)
        if not isinstance(clouds, PointClouds) or len(clouds.batch_shape) != 1:
            raise TypeError(
                "Expected PointClouds with one batch axis, or a tuple of these and their targets, got "
                f"{clouds if isinstance(clouds, PointClouds) else type(clouds).__name__}."
            )
        return clouds, None if targets is None else target_tensor(targets, len(clouds))


@dataclass(frozen=True, eq=False)
class HeldPiece(Piece):
    """A piece of an object in this process with a method ``piece``, of which workers get the content.

    Attributes:
        data: The object.
        number: Number of the piece.
        name: Where the content lies, for messages.
    """

    data: Any
    number: int
    name: str = ""

    def read(self) -> tuple[Any, ...]:
        """Read the distributions, their targets, and what else belongs to them."""
        found: tuple[Any, ...] = self.data.piece(self.number)
        return found

    def sent(self) -> Piece:
        """Return the content of the piece, without the other pieces."""
        with named(self.name):
            return _Content(self.read(), self.name)


@dataclass(frozen=True, eq=False)
class _Content(Piece):
    content: tuple[Any, ...]
    name: str

    def read(self) -> tuple[Any, ...]:
        return self.content


def target_tensor(values: Any, count: int, labels: Any = None, name: str = "targets") -> Tensor:
    """Return targets as a ``count`` or ``count x outputs`` tensor in double precision.

    Args:
        values: The targets.
        count: Number of bags.
        labels: Names of the bags, for error messages.
        name: Name of the targets, for error messages.

    Raises:
        ValueError: If the targets are of another shape, or not finite.
    """
    refuse_mask(values, "Targets")
    targets = torch.as_tensor(values, dtype=torch.float64)
    if targets.dim() not in (1, 2) or len(targets) != count:
        raise ValueError(
            f"{name}: expected shape ({count},) or ({count}, outputs), one row for each bag, got "
            f"{tuple(targets.shape)}."
        )
    finite = targets.isfinite()
    wrong = (~(finite if finite.dim() == 1 else finite.all(-1))).nonzero()
    if len(wrong):
        bag = int(wrong[0])
        raise ValueError(
            f"Bag {bag if labels is None else repr(labels[bag])}: expected a finite target in {name}, "
            f"got {targets[bag].tolist()}. Leave out bags without a target."
        )
    return targets
