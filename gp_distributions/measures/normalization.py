"""Centre and scale of each coordinate, pooled over distributions."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.measures.arrays import Data, real_array, to_tensor


def pooled_centre_and_scale(
    mean: Tensor, variance: Tensor, weights: Tensor, scale: Data | None
) -> tuple[Tensor, Tensor]:
    """Centre and scale of mixtures, each of which counts once.

    Args:
        mean: A ``batch_shape x K x d`` tensor, the means of the components.
        variance: A ``batch_shape x K x d`` tensor, their variances in each coordinate.
        weights: A ``batch_shape x K`` tensor of weights that sum to one.
        scale: One positive number, or ``d`` of them; None: the standard deviation of the pooled law.

    Returns:
        The mean of the pooled law, ``d``, and the scale, ``d`` or a single number.

    Raises:
        ValueError: If a scale is not positive, or a coordinate is constant and no scale is given.
    """
    dim = mean.shape[-1]
    centre = (weights.unsqueeze(-2) @ mean).reshape(-1, dim).mean(0)
    if scale is not None:
        return centre, given_scale(scale, centre)
    _check_spread(mean, variance, weights)
    squares = weights.unsqueeze(-2) @ (variance + (mean - centre).square())
    return centre, squares.reshape(-1, dim).mean(0).sqrt()


def given_scale(scale: Data, like: Tensor) -> Tensor:
    """Take a scale for all coordinates, or one for each, as a tensor like the ``d`` given.

    Raises:
        ValueError: If it is not positive and finite, or of another length.
    """
    divisor = to_tensor(real_array(scale, "scale"), like.dtype, like.device)
    if divisor.shape not in {(), like.shape} or not ((divisor > 0) & divisor.isfinite()).all():
        raise ValueError(
            f"scale: expected one positive number or {len(like)} of them, got {divisor.tolist()}."
        )
    return divisor


def _check_spread(mean: Tensor, variance: Tensor, weights: Tensor) -> None:
    present = weights > 0
    low, high = mean[present].amin(0), mean[present].amax(0)
    constant = (low == high) & (variance[present] <= 0).all(0)
    if constant.any():
        first = int(constant.nonzero()[0])
        raise ValueError(
            f"Coordinate {first}: expected several values, to take their standard deviation as "
            f"scale, got {low[first]} everywhere; pass scale=."
        )
