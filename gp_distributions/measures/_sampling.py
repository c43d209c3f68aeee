"""Draw indices with probabilities given by weights."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.measures.arrays import integer


def seeded(seed: int | torch.Generator, device: torch.device) -> torch.Generator:
    """Return a generator on the device with the given seed; return a given generator unchanged.

    Raises:
        ValueError: If the seed is neither a generator nor a non-negative integer.
    """
    if isinstance(seed, torch.Generator):
        return seed
    return torch.Generator(device).manual_seed(integer(seed, "seed", least=0))


def draw_indices(weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw indices with replacement, with probabilities proportional to their weights.

    Args:
        weights: A ``batch_shape x n`` tensor of weights.
        count: Number of draws from each row of weights.
        generator: Random number generator.

    Returns:
        A ``batch_shape x count`` tensor of integers.
    """
    flat = weights.detach().reshape(-1, weights.shape[-1])
    drawn = torch.multinomial(flat, count, replacement=True, generator=generator)
    return drawn.reshape(*weights.shape[:-1], count)
