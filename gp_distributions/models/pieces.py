"""Training data in pieces, over which sums are formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.inputs import Encoding, Inputs
from gp_distributions.measures.training_data import TrainingData, counted
from gp_distributions.models.labelling import LabelTargets
from gp_distributions.sharding.pieces import HeldPiece, Piece
from gp_distributions.sharding.sharded_clouds import ShardedClouds


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


def as_pieces(
    train_X: Inputs | Tensor | Pieces,
    train_Y: Tensor | ArrayLike | None,
    train_Yvar: Tensor | ArrayLike | None,
    *,
    classify: bool = False,
) -> Pieces:
    """Return training data in pieces.

    Args:
        train_X: Training data as for :class:`SparseDistributionGP`.
        train_Y: Their targets or labels, or ``None`` if pieces carry theirs.
        train_Yvar: Their known noise variances, or ``None``.
        classify: Whether they are labels.

    Raises:
        ValueError: If targets are missing, or given for pieces, or do not fit the clouds; or there is a
            batch axis.
    """
    if not isinstance(train_X, Inputs | Tensor) and isinstance(train_X, Pieces):
        if train_Y is not None or train_Yvar is not None:
            raise ValueError(
                "Expected train_Y=None and train_Yvar=None for data in pieces, which carry their "
                f"{'labels' if classify else 'targets'}."
            )
        return train_X
    batch_shape = counted(train_X).shape[:-2]
    if batch_shape:
        raise ValueError(
            f"Expected clouds without a batch axis, got batch shape {tuple(batch_shape)}. Fit one "
            "model for each batch."
        )
    return TrainingData.read(train_X, train_Y, train_Yvar, classify=classify)


@dataclass(frozen=True, eq=False)
class LabelledPieces:
    """Pieces of data whose labels become targets and noise variances where the pieces are read.

    Args:
        pieces: Pieces of data with labels.
        labelling: Function of labels that returns targets and noise variances, ``N x outputs``.
    """

    pieces: Pieces
    labelling: LabelTargets

    @property
    def encoding(self) -> Encoding | None:
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
    named = not isinstance(data, TrainingData)  # clouds in memory were checked together
    return [
        HeldPiece(data, number, f"piece {number}" if named else "")
        for number in range(data.num_pieces)
    ]
