"""Training data in pieces, over which sums are formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import Labels, integer
from gp_distributions.measures.inputs import Encoding, Inputs, TrainingData, counted
from gp_distributions.models.dirichlet import dirichlet_targets
from gp_distributions.sharding.pieces import HeldPiece, Piece
from gp_distributions.sharding.sharded_clouds import ShardedClouds

# The sample has this many times as many clouds as are inducing, and at least _FEWEST.
_TIMES, _FEWEST = 4, 2000
# Number of sampled clouds to which distances, sampling noise and, for shards, the targets' scale adapt.
_ADAPTED = 1000


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
class LabelTargets:
    """A function of labels that returns the targets and noise variances of a classifier.

    Args:
        classes: The distinct labels in sorted order, as the data have them.
        alpha_epsilon: The concentration of the classes that are not the label.
    """

    classes: Labels
    alpha_epsilon: float

    def __call__(self, labels: Any) -> tuple[Tensor, Tensor]:
        """Return the targets and noise variances, two ``N x C`` tensors.

        Raises:
            ValueError: If a label is not one of the classes, or the concentration is not positive.
        """
        values = as_labels(labels)
        index = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        strange = np.flatnonzero(self.classes[index] != values)
        if len(strange):
            raise ValueError(
                f"Expected one of the labels {self.classes.tolist()}, but that of cloud {strange[0]} is "
                f"{values[strange[0]]!r}."
            )
        return dirichlet_targets(torch.from_numpy(index), len(self.classes), self.alpha_epsilon)


def as_labels(labels: Any) -> Labels:
    """Return the labels of a piece as an array.

    Raises:
        ValueError: If the piece has none.
    """
    if labels is None:
        raise ValueError("Expected pieces that carry labels, got labels of None.")
    return np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)


def distinct_labels(number: int, X: Any, labels: Any, *rest: Any) -> Labels:
    """Return the distinct labels of a piece in sorted order."""
    return np.unique(as_labels(labels))


@dataclass(frozen=True, eq=False)
class SampledPieces:
    """Training data in pieces, and a random sample of their clouds.

    Attributes:
        source: The data.
        content: The sample: distributions, their targets or labels, and noise variances if known.
        seed: Random seed of the sample and of its parts.
        encoding: Encoding of mixed inputs or of atoms, or None.
        labelling: Function of labels that returns targets and noise variances, two ``N x outputs``
            tensors, where pieces are read; None for targets.
    """

    source: Pieces
    content: tuple[Any, ...]
    seed: int
    encoding: Encoding | None
    labelling: LabelTargets | None = None

    @classmethod
    def read(
        cls,
        train_X: Inputs | Tensor | Pieces | SampledPieces,
        train_Y: Tensor | ArrayLike | None,
        train_Yvar: Tensor | ArrayLike | None = None,
        *,
        num_inducing: int,
        seed: int,
        client: Any,
        progress: bool,
        classify: bool = False,
    ) -> SampledPieces:
        """Check training data in memory, and draw a sample in one pass over the pieces that hold it.

        Args:
            train_X: Training data as for :class:`SparseDistributionGP`; or what this function returned.
            train_Y: Their targets or labels, or ``None`` if pieces carry theirs.
            train_Yvar: Their known noise variances, or ``None``.
            num_inducing: Number of inducing clouds, of which there are four times as many in the sample.
            seed: Random seed.
            client: A client of ``dask.distributed``, whose workers read :class:`ShardedClouds`.
            progress: Whether to show a progress bar if that takes more than a few seconds.
            classify: Whether there are labels.

        Raises:
            ValueError: If targets are missing, or given for pieces, or do not fit the clouds; there is
                a batch axis; or ``num_inducing < 1``.
        """
        if isinstance(train_X, SampledPieces):
            return train_X
        source: Pieces
        if not isinstance(train_X, Pieces):
            batch_shape = counted(train_X).shape[:-2]
            if batch_shape:
                raise ValueError(
                    f"Expected clouds without a batch axis, got batch shape {tuple(batch_shape)}. Fit "
                    "one model for each batch."
                )
            source = TrainingData.read(train_X, train_Y, train_Yvar, classify=classify)
        elif train_Y is None and train_Yvar is None:
            source = train_X
        else:
            raise ValueError(
                "Expected train_Y=None and train_Yvar=None for data in pieces, which carry their "
                f"{'labels' if classify else 'targets'}."
            )
        sharded = isinstance(source, ShardedClouds)
        options = {"client": client, "progress": progress} if sharded else {}
        size = max(_TIMES * integer(num_inducing, "num_inducing"), _FEWEST)
        content = source.sample(size, seed, **options)
        if content[1] is None:
            noun = "labels" if classify else "targets"
            raise ValueError(f"Expected pieces that carry {noun}, got {noun} of None.")
        return cls(source, content, seed, getattr(source, "encoding", None))

    @property
    def memory(self) -> TrainingData | None:
        """The data if they are in memory."""
        return self.source if isinstance(self.source, TrainingData) else None

    @property
    def pieces(self) -> Sequence[Piece]:
        """Descriptions of the pieces, which a pass over them reads where they are needed."""
        if isinstance(self.source, ShardedClouds):
            return self.source.pieces
        named = self.memory is None  # clouds in memory were checked together
        return [
            HeldPiece(self.source, number, f"piece {number}" if named else "")
            for number in range(self.source.num_pieces)
        ]

    @property
    def adapted(self) -> tuple[Any, ...]:
        """The part of the sample to which models adapt."""
        return self.part(_ADAPTED)

    def part(self, n: int) -> tuple[Any, ...]:
        """Return a random part of ``n`` clouds of the sample in their order, or all if there are fewer.

        A smaller part is a part of a larger one.
        """
        X = self.content[0]
        if n >= len(X):
            return self.content
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(self.seed))
        index = order[:n].sort().values
        return X[index.to(X.device)], *(_taken(values, index) for values in self.content[1:])


def _taken(values: Any, index: Tensor) -> Any:
    if isinstance(values, Tensor):
        return values[index.to(values.device)]
    return None if values is None else np.asarray(values)[index.numpy()]
