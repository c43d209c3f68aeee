"""Centre and scale of each coordinate, pooled over distributions."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.measures.arrays import Data, real_array, to_tensor


def pooled_centre_and_scale(
    mean: Tensor, variance: Tensor, weights: Tensor, scale: Data | None
) -> tuple[Tensor, Tensor]:
    """Centre and scale of pooled mixtures, each of which counts once.

    Args:
        mean: A ``batch_shape x K x d`` tensor, the means of the components.
        variance: A ``batch_shape x K x d`` tensor, their variances in each coordinate.
        weights: A ``batch_shape x K`` tensor of weights that sum to one.
        scale: One positive number or ``d`` of them; None for the standard deviation of the pooled
            distribution.

    Returns:
        The mean of the pooled distribution, of shape ``d``, and the scale, a scalar or of shape ``d``.

    Raises:
        ValueError: If a scale is not positive, or a coordinate is constant and no scale is given.
    """
    dim = mean.shape[-1]
    centre = (weights.unsqueeze(-2) @ mean).reshape(-1, dim).mean(0)
    if scale is not None:
        return centre, given_scale(scale, centre)
    present = weights > 0
    low, high = mean[present].amin(0), mean[present].amax(0)
    constant = (low == high) & (variance[present] <= 0).all(0)
    if constant.any():
        first = int(constant.nonzero()[0])
        raise ValueError(
            f"Coordinate {first}: expected several values, whose standard deviation is the scale, "
            f"got {low[first]} everywhere; pass scale=."
        )
    squares = weights.unsqueeze(-2) @ (variance + (mean - centre).square())
    return centre, squares.reshape(-1, dim).mean(0).sqrt()


def given_scale(scale: Data, like: Tensor) -> Tensor:
    """Convert one scale, or one for each coordinate, to a tensor.

    Args:
        scale: One positive number or ``d`` of them.
        like: A tensor of shape ``d`` whose dtype and device the scale takes.

    Raises:
        ValueError: If a scale is not positive and finite, or their number is not 1 or ``d``.
    """
    divisor = to_tensor(real_array(scale, "scale"), like.dtype, like.device)
    if divisor.shape not in {(), like.shape} or not ((divisor > 0) & divisor.isfinite()).all():
        raise ValueError(
            f"scale: expected one positive number or {len(like)} of them, got {divisor.tolist()}."
        )
    return divisor
