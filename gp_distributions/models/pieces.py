"""Training data in pieces, over which sums are formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures import MixedInputs
from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.inputs import Inputs, encoding_of
from gp_distributions.measures.kinds import Distributions
from gp_distributions.models.arguments import counted_rows
from gp_distributions.models.labelling import LabelTargets
from gp_distributions.models.targets import as_targets, as_variances, check_order
from gp_distributions.sharding.held import HeldPiece
from gp_distributions.sharding.pieces import Piece
from gp_distributions.sharding.sharded_clouds import ShardedClouds

# Number of clouds in a piece of data in memory. Sums depend on it in the last bits, so it is fixed.
PIECE_SIZE = 8192


@runtime_checkable
class Pieces(Protocol):
    """Training data in pieces: clouds and targets that need not fit into memory together."""

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""

    def piece(self, index: int) -> tuple[Any, ...]:
        """Return the distributions of a piece, their targets, and their noise variances if known.

        Targets are ``N`` or ``N x outputs``, or ``None`` if the data have none.
        """

    def sample(self, n: int, seed: int) -> tuple[Any, ...]:
        """Return a random sample of ``n`` clouds, or all if there are fewer, as :meth:`piece` does."""


@dataclass(frozen=True, eq=False)
class MemoryPieces:
    """Distributions, mixed inputs or rows in memory, cut into pieces of a fixed size.

    Args:
        X: ``T`` distributions or mixed inputs, or a ``T x width`` tensor of rows or designs.
        targets: A ``T x outputs`` tensor.
        variances: Known noise variances of the targets, or ``None``.
        size: Number of clouds in a piece.
    """

    X: Inputs | Tensor
    targets: Tensor
    variances: Tensor | None = None
    size: int = PIECE_SIZE

    @property
    def encoding(self) -> MixedEncoding | None:
        """The encoding that mixed inputs define, or ``None``."""
        return encoding_of(self.X)

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return -(-len(self.targets) // self.size)

    def piece(self, index: int) -> tuple[Any, ...]:
        """Return the distributions of a piece, their targets, and their noise variances if known."""
        return self._at(slice(index * self.size, (index + 1) * self.size))

    def sample(self, n: int, seed: int) -> tuple[Any, ...]:
        """Return a random sample of ``n`` clouds in their order, or all clouds if there are fewer."""
        if n >= len(self.targets):
            return self._at(slice(None))
        generator = torch.Generator().manual_seed(seed)
        index = torch.randperm(len(self.targets), generator=generator)[:n].sort().values
        return self._at(index.to(self.targets.device))

    def _at(self, index: slice | Tensor) -> tuple[Any, ...]:
        found = self.X[index], self.targets[index]
        return found if self.variances is None else (*found, self.variances[index])


def as_pieces(
    train_X: Inputs | Tensor | Pieces,
    train_Y: Tensor | ArrayLike | None,
    train_Yvar: Tensor | ArrayLike | None,
) -> tuple[Pieces, bool]:
    """Return training data in pieces, and whether targets had no axis of outputs.

    Args:
        train_X: Training data as for :class:`SparseDistributionGP`.
        train_Y: Their targets, or ``None`` if pieces carry theirs.
        train_Yvar: Their known noise variances, or ``None``.

    Raises:
        ValueError: If targets are missing, or given for pieces, or do not fit the clouds.
    """
    if not isinstance(train_X, Inputs | Tensor) and isinstance(train_X, Pieces):
        if train_Y is not None or train_Yvar is not None:
            raise ValueError(
                "Expected train_Y=None and train_Yvar=None for data in pieces, which carry their "
                "targets."
            )
        return train_X, False
    if train_Y is None:
        raise ValueError("Expected train_Y, the targets of the clouds, got None.")
    like = first_row(train_X).detach().double().expand(len(train_X), -1)
    check_order(train_X, train_Y)
    check_order(train_X, train_Yvar, "variances")
    targets, squeeze = as_targets(train_Y, like)
    known = None if train_Yvar is None else as_variances(train_Yvar, like, targets)
    return MemoryPieces(train_X, targets, known), squeeze


def first_row(train_X: Inputs | Tensor) -> Tensor:
    """Return the row of the first of several clouds, a ``1 x width`` tensor; without any, ``0 x width``.

    Raises:
        TypeError: If a tensor is not dense.
        ValueError: If there is a single cloud, or a batch axis.
    """
    kept = train_X[:1] if isinstance(train_X, Distributions | MixedInputs) else train_X
    rows = counted_rows(kept, encoding_of(train_X))
    if rows.dim() != 2:
        raise ValueError(
            f"Expected clouds without a batch axis, got batch shape {tuple(rows.shape[:-2])}. Fit one "
            "model for each batch."
        )
    return rows[:1]


@dataclass(frozen=True, eq=False)
class LabelledPieces:
    """Pieces of data whose labels become targets and noise variances where the pieces are read.

    Args:
        pieces: Pieces of data with labels.
        labelling: Function of labels that returns targets and noise variances, ``N x outputs``.
        drawn: The sample of the clouds if it has been drawn, or None.
    """

    pieces: Pieces
    labelling: LabelTargets
    drawn: Sample | None = None

    @property
    def encoding(self) -> MixedEncoding | None:
        """The encoding that mixed inputs define, or ``None``."""
        return getattr(self.pieces, "encoding", None)

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return self.pieces.num_pieces

    def piece(self, index: int) -> tuple[Any, ...]:
        """Return the distributions of a piece and their labels."""
        return self.pieces.piece(index)

    def sample(self, n: int, seed: int) -> tuple[Any, ...]:
        """Return a random sample of ``n`` clouds, as :meth:`piece` does."""
        return self.pieces.sample(n, seed)


@dataclass(frozen=True, eq=False)
class Sample:
    """A random sample of the clouds of data in pieces, of which smaller samples are parts.

    Args:
        content: Distributions, their targets or labels, and their noise variances if known.
        seed: Random seed of the parts.
    """

    content: tuple[Any, ...]
    seed: int

    @classmethod
    def draw(
        cls, data: Pieces, n: int, seed: int, *, client: Any = None, progress: bool = False
    ) -> Sample:
        """Draw clouds, in one pass over the pieces that hold them.

        Args:
            data: Data in pieces.
            n: Number of clouds.
            seed: Random seed.
            client: A client of ``dask.distributed``, whose workers read :class:`ShardedClouds`.
            progress: Whether to show a progress bar if that takes more than a few seconds.
        """
        if isinstance(data, LabelledPieces):
            if data.drawn is not None:
                return data.drawn
            return cls.draw(data.pieces, n, seed, client=client, progress=progress)
        if isinstance(data, ShardedClouds):
            return cls(data.sample(n, seed, client=client, progress=progress), seed)
        return cls(data.sample(n, seed), seed)

    def part(self, n: int) -> tuple[Any, ...]:
        """Return a random part of ``n`` clouds in their order, or all if there are fewer.

        A smaller part is a part of a larger one.
        """
        X = self.content[0]
        count = X.shape[-2] if isinstance(X, Tensor) else len(X)
        if n >= count:
            return self.content
        order = torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))
        index = order[:n].sort().values
        return X[index.to(X.device)], *(_taken(values, index) for values in self.content[1:])


def _taken(values: Any, index: Tensor) -> Any:
    if isinstance(values, Tensor):
        return values[index.to(values.device)]
    return None if values is None else np.asarray(values)[index.numpy()]


def described(data: Pieces) -> Sequence[Piece]:
    """Return descriptions of the pieces, which a pass over them reads where they are needed."""
    if isinstance(data, LabelledPieces):
        return described(data.pieces)
    if isinstance(data, ShardedClouds):
        return data.pieces
    named = not isinstance(data, MemoryPieces)  # clouds in memory were checked together
    return [
        HeldPiece(data, number, f"piece {number}" if named else "")
        for number in range(data.num_pieces)
    ]
