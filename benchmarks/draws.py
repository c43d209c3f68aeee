"""Random numbers in double precision, reproducible from a seed."""

from __future__ import annotations

import torch
from torch import Tensor


class Draws:
    """Draws uniform and normal numbers one after the other."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return numbers uniform on an interval."""
        numbers = torch.rand(*shape, generator=self.generator, dtype=torch.float64)
        return low + (high - low) * numbers

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)


def rotations(angles: Tensor) -> Tensor:
    """Return the rotations of the plane by some angles, ``N x 2 x 2``."""
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([cos, -sin, sin, cos], dim=-1).unflatten(-1, (2, 2))
