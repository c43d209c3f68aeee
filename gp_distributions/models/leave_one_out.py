"""Leave-one-out predictions of sparse models, in one pass over the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.collapsed import CollapsedPosterior, Reader, chunks, number_of

# Where a share is smaller than this many times the machine precision and the number of features, its
# rounding errors could exceed a hundredth of it.
_LEAST = 100


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
        for rows, y, relative in chunks(self.reader, X, *known) if number_of(X) else ():
            noise = (self.noise * relative).unsqueeze(-1)  # P x N x 1
            fitted, *spreads = current.marginals(rows)
            fitted = fitted.unflatten(-1, mean.shape).movedim(-2, 0)
            spread, left = (part.unsqueeze(-1) for part in spreads)
            kept = 1 - spread / noise
            start = sum(part.shape[-2] for part, *_ in found)
            _check_kept(kept, noise, len(current.weights), start)
            error = (y - mean.unsqueeze(-2) - fitted) / kept
            variance = left + spread / kept
            found.append((y - error, variance.expand(y.shape), noise.expand(y.shape)))
        parts = (torch.cat(p, dim=-2) for p in zip(*found, strict=True))
        means, variances, noises = (part.movedim(0, -2).flatten(-2) for part in parts)
        return means, variances, noises


def _check_kept(kept: Tensor, noise: Tensor, features: int, start: int) -> None:
    """Check that the differences ``P x N x 1`` have not been lost in rounding errors."""
    least = _LEAST * features * torch.finfo(kept.dtype).eps
    lost = (kept < least).any(0).flatten().nonzero()
    if len(lost):
        first = int(lost[0])
        raise ValueError(
            f"Cloud {start + first}: expected a noise variance that can be told from rounding errors "
            f"when the cloud is left out, got {noise[:, first].min().item():.2g} in transformed units. "
            "Set a larger noise, or use DistributionGP for few clouds."
        )
