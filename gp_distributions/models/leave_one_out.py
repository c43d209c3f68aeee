"""Leave-one-out predictions of sparse models, in one pass over the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gp_distributions.measures.inputs import Inputs
from gp_distributions.models.collapsed import (
    CollapsedPosterior,
    PieceState,
    chunks,
    number_of,
)

# Where a share is smaller than this many times the machine precision and the number of features, its
# rounding errors could exceed a hundredth of it.
_LEAST = 100


@dataclass(frozen=True, eq=False)
class LeaveOneOutState:
    """What leave-one-out predictions need of a model besides the data; it can be pickled.

    Args:
        pieces: What the sums over a piece need.
        posterior: The posterior given all clouds.
        noise: The noise variance of clouds with the relative noise 1.
        mean: The constant means, ``P x R``.
    """

    pieces: PieceState
    posterior: CollapsedPosterior
    noise: Tensor
    mean: Tensor


def left_out(
    state: LeaveOneOutState, X: Inputs | Tensor, targets: Any, variances: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Predict each cloud of a piece from all others.

    Args:
        state: What this needs of the model.
        X: ``N`` distributions, or an ``N x width`` tensor.
        targets: Their targets or labels.
        variances: Their noise variances if they are known.

    Returns:
        Means and variances of the latent functions, and noise variances, three ``N x outputs`` tensors.

    Raises:
        ValueError: If the noise of a cloud is so small that rounding errors hide what others predict.
    """
    mean, current = state.mean, state.posterior
    if not number_of(X):
        empty = mean.new_empty(0, mean.numel())
        return empty, empty, empty
    found: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        for rows, y, relative in chunks(state.pieces.reader, X, targets, variances):
            noise = (state.noise * relative).unsqueeze(-1)  # P x N x 1
            fitted, *spreads = current.marginals(rows)
            fitted = fitted.unflatten(-1, mean.shape).movedim(-2, 0)
            spread, left = (part.unsqueeze(-1) for part in spreads)
            kept = 1 - spread / noise
            _check_kept(
                kept, noise, len(current.weights), sum(part.shape[-2] for part, *_ in found)
            )
            error = (y - mean.unsqueeze(-2) - fitted) / kept
            variance = left + spread / kept
            found.append((y - error, variance.expand(y.shape), noise.expand(y.shape)))
    parts = zip(*found, strict=True)
    means, variances, noises = (torch.cat(p, dim=-2).movedim(0, -2).flatten(-2) for p in parts)
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
