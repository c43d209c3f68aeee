"""Training data in pieces, over which sums are formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.measures.inputs import Inputs, encoding_of
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


def described(data: Pieces) -> Sequence[Piece]:
    """Return descriptions of the pieces, which a pass over them reads where they are needed."""
    if isinstance(data, ShardedClouds):
        return data.pieces
    return [HeldPiece(data, number) for number in range(data.num_pieces)]
