"""Passes over pieces of data: how pieces are read, what is computed of each, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, TypeVar

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gp_distributions.measures.inputs import Encoding, Inputs, input_rows
from gp_distributions.measures.targets import as_targets, as_variances
from gp_distributions.models.collapsed import (
    CollapsedPosterior,
    CollapsedSums,
    Features,
    column_grams,
)
from gp_distributions.models.sampling_noise import relative_noise
from gp_distributions.sharding.passes import Task, run
from gp_distributions.sharding.pieces import Piece

Sums = TypeVar("Sums")

# Number of clouds whose features are in memory at a time. Sums depend on it in the last bits.
_CHUNK = 2048
# Where a share is smaller than this many times the machine precision and the number of features, its
# rounding errors could exceed a hundredth of it.
_LEAST = 100


@dataclass(frozen=True, eq=False)
class Reader:
    """What turns a piece of data into rows, targets and relative noise variances.

    Args:
        likelihood: The likelihood of a model. Noise that depends on the size of bags is relative to the
            noise of the largest bags.
        input_transform: Transform of inputs to rows in evaluation mode, or ``None``.
        outcome_transform: Transform of targets in evaluation mode, or ``None``.
        encoding: Encoding of mixed inputs or of atoms, or ``None``.
        labelling: Function of labels that returns targets and noise variances, two ``N x outputs``
            tensors, or ``None`` if the data carry targets.
    """

    likelihood: GaussianLikelihood | None
    input_transform: Callable[[Tensor], Tensor] | None
    outcome_transform: Callable[..., tuple[Tensor, Tensor | None]] | None
    encoding: Encoding | None = None
    labelling: Callable[[Any], tuple[Tensor, Tensor]] | None = None

    def rows(self, X: Inputs | Tensor) -> Tensor:
        """Return the rows of distributions, in double precision."""
        rows = input_rows(X, self.encoding).detach().double()
        return rows if self.input_transform is None else self.input_transform(rows)

    def targets(
        self, X: Inputs | Tensor, targets: Any, variances: Any = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return transformed targets and noise variances, two ``N x outputs`` tensors.

        Raises:
            ValueError: If their numbers differ from that of the clouds, a target is not finite, or a
                variance is not positive and finite.
        """
        if self.labelling is not None:
            targets, variances = self.labelling(targets)
        like = torch.empty(1, dtype=torch.float64, device=X.device).expand(len(X), 1)
        found, _ = as_targets(targets, like)
        known = None if variances is None else as_variances(variances, like, found)
        transform = self.outcome_transform
        return (found, known) if transform is None else transform(found, known)


@dataclass(frozen=True, eq=False)
class PieceSums:
    """A task that computes the sums over the clouds of a piece; it can be pickled.

    Args:
        features: The features of rows.
        reader: What turns a piece of data into rows, targets and noise.
    """

    features: Features
    reader: Reader

    @torch.no_grad()
    def __call__(self, number: int, X: Inputs | Tensor, *known: Any) -> CollapsedSums | None:
        """Compute the sums over the clouds of a piece, a fixed number of clouds at a time.

        Args:
            number: Number of the piece.
            X: ``N`` distributions, or an ``N x width`` tensor.
            *known: Their targets or labels, and their noise variances if they are known.

        Returns:
            The sums, or None of an empty piece.

        Raises:
            ValueError: If the targets do not match the clouds or are not finite, or a sum is not finite.
        """
        if not len(X):
            return None
        # With many features, a few sums fill the memory.
        parts = (self._sums(*chunk) for chunk in chunks(self.reader, X, *known))
        total: CollapsedSums = reduce(add, parts)
        if not bool(total.gram.isfinite().all()):
            raise ValueError("Expected clouds with finite covariances, got some that are not.")
        return total

    def _sums(self, rows: Tensor, targets: Tensor, noise: Tensor) -> CollapsedSums:
        phi = self.features(rows)
        left = self.features.residual(rows, phi)
        columns = torch.cat([torch.ones_like(targets[..., :1]), targets], -1)
        sums = column_grams(phi, columns, 1 / noise), (left / noise).sum(-1)
        return CollapsedSums(*sums, noise.log().sum(-1), len(rows), phi.shape[-1])


def chunks(
    reader: Reader,
    X: Inputs | Tensor,
    targets: Any,
    variances: Tensor | None = None,
    *,
    size: int = _CHUNK,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield parts of a piece: rows ``N x width``, targets ``P x N x R`` and relative noise ``P x N``."""
    values, known = reader.targets(X, targets, variances)
    values = values.unsqueeze(0) if known is None else values.mT.unsqueeze(-1)
    for start in range(0, values.shape[-2], size):
        part = slice(start, start + size)
        rows = reader.rows(X[part])
        relative = relative_noise(reader.likelihood, rows).unsqueeze(0)
        yield rows, values[:, part], relative if known is None else known[part].mT


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A task that predicts each cloud of a piece from all others; it can be pickled.

    Args:
        reader: What turns a piece of data into rows, targets and noise.
        posterior: The posterior given all clouds.
        noise: The noise variance of clouds with the relative noise 1.
        mean: The constant means, ``P x R``.
    """

    reader: Reader
    posterior: CollapsedPosterior
    noise: Tensor
    mean: Tensor

    @torch.no_grad()
    def __call__(
        self, number: int, X: Inputs | Tensor, *known: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Predict each cloud of a piece from all others.

        Args:
            number: Number of the piece.
            X: ``N`` distributions, or an ``N x width`` tensor.
            *known: Their targets or labels, and their noise variances if they are known.

        Returns:
            Means and variances of the latent functions, and noise variances, three ``N x outputs``
            tensors.

        Raises:
            ValueError: If the noise of a cloud is so small that rounding errors hide what others
                predict.
        """
        mean, current = self.mean, self.posterior
        found: list[tuple[Tensor, ...]] = [(mean.new_empty(*mean.shape[:1], 0, mean.shape[1]),) * 3]
        for rows, y, relative in chunks(self.reader, X, *known) if len(X) else ():
            noise = (self.noise * relative).unsqueeze(-1)  # P x N x 1
            fitted, *spreads = current.marginals(rows)
            fitted = fitted.unflatten(-1, mean.shape).movedim(-2, 0)
            spread, left = (part.unsqueeze(-1) for part in spreads)
            kept = 1 - spread / noise
            least = _LEAST * len(current.weights) * torch.finfo(kept.dtype).eps
            lost = (kept < least).any(0).flatten().nonzero()
            if len(lost):
                first = int(lost[0])
                raise ValueError(
                    f"Cloud {sum(part.shape[-2] for part, *_ in found) + first}: expected a noise "
                    "variance that can be told from rounding errors when the cloud is left out, got "
                    f"{noise[:, first].min().item():.2g} in transformed units. Set a larger noise, or "
                    "use DistributionGP for few clouds."
                )
            error = (y - mean.unsqueeze(-2) - fitted) / kept
            variance = left + spread / kept
            found.append((y - error, variance.expand(y.shape), noise.expand(y.shape)))
        parts = (torch.cat(p, dim=-2) for p in zip(*found, strict=True))
        means, variances, noises = (part.movedim(0, -2).flatten(-2) for part in parts)
        return means, variances, noises


@dataclass(frozen=True, eq=False)
class PredictedPieces:
    """A task that predicts the clouds of a piece.

    Attributes:
        model: The model, which is sent to workers.
        method: Name of its method, as for :meth:`Regression.in_batches`.
        arguments: Further arguments of that method.
    """

    model: Any
    method: str
    arguments: dict[str, Any]

    def __call__(self, number: int, X: Any, *rest: Any) -> Any:
        """Predict the clouds of a piece."""
        return self.model.in_batches(X, self.method, progress=False, **self.arguments)


def sums_over_pieces(
    task: Task[Sums | None],
    pieces: Sequence[Piece],
    *,
    progress: bool = True,
    client: Any = None,
) -> Sums:
    """Add the results of a task over all pieces of data, in the order of the pieces.

    Args:
        task: The task. It can be pickled, and depends on nothing else. None adds nothing.
        pieces: The pieces.
        progress: Whether to show a progress bar if it takes more than a few seconds.
        client: A client of ``dask.distributed`` whose workers compute the sums. Default: this process.

    Returns:
        The sum of the results.

    Raises:
        PieceError: If a piece cannot be read or summed; the message names it.
    """
    results = run(task, pieces, client=client, progress="Pieces" if progress else None)
    total: Any = None
    with closing(results):
        for part in results:
            terms = [each for each in (total, part) if each is not None]
            total = reduce(add, terms) if terms else None
    return total
