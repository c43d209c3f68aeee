"""Validation of the scale that a caller passes for the coordinates."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.measures.arrays import Data, real_array, to_tensor


def given_scale(scale: Data, like: Tensor) -> Tensor:
    """Convert one scale, or one for each coordinate, to a tensor.

    Args:
        scale: One positive number or ``d`` of them.
        like: A tensor of shape ``d`` that determines the dtype and device of the scale.

    Raises:
        ValueError: If a scale is not positive and finite, or the number of scales is not 1 or ``d``.
    """
    divisor = to_tensor(real_array(scale, "scale"), like.dtype, like.device)
    if divisor.shape not in {(), like.shape} or not ((divisor > 0) & divisor.isfinite()).all():
        raise ValueError(
            f"scale: expected one positive number or {len(like)} of them, got {divisor.tolist()}."
        )
    return divisor
