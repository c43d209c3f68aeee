"""Scales of coordinates: those that a caller passes, and powers of two close to them."""

from __future__ import annotations

import torch
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


def unit_powers(sizes: Tensor) -> Tensor:
    """Return the powers of two that bring sizes into the range from 1/2 to 1.

    The product with a power of two is exact, so that products and squares of numbers in these units have
    the same digits, but neither overflow nor underflow.

    Args:
        sizes: A tensor of non-negative numbers. A size of zero has the unit 1.

    Returns:
        A tensor of the same shape, without a gradient.
    """
    sizes = sizes.detach()
    tiny = torch.finfo(sizes.dtype).tiny
    powers = (sizes.frexp().mantissa / sizes).clamp(tiny, 1 / tiny)
    return torch.where(sizes > 0, powers, 1.0)
