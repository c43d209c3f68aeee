"""Square roots with finite gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def square_root(values: Tensor, *, at_zero: float = 0.0) -> Tensor:
    """Square root whose derivative at zero, which would be infinite, is zero.

    Args:
        values: A tensor. Negative values are rounding errors and count as zero.
        at_zero: Value at zero: 0, or a positive number if the root is a divisor.

    Returns:
        A tensor of the same shape.
    """
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1.0).sqrt(), at_zero)
