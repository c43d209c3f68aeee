"""Drawing indices by weight."""

from __future__ import annotations

import torch
from torch import Tensor


def seeded(seed: int | torch.Generator, device: torch.device) -> torch.Generator:
    """Return a generator on the device, made from a seed unless it is already a generator."""
    if isinstance(seed, torch.Generator):
        return seed
    return torch.Generator(device).manual_seed(seed)


def draw_indices(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw indices by weight, with replacement.

    Args:
        weights: A ``batch_shape x n`` tensor of weights.
        count: Number of draws.
        generator: Random number generator.

    Returns:
        A ``batch_shape x count`` tensor of integers.
    """
    flat = weights.detach().reshape(-1, weights.shape[-1])
    drawn = torch.multinomial(flat, count, replacement=True, generator=generator)
    return drawn.reshape(*weights.shape[:-1], count)
