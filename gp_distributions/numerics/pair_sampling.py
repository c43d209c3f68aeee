"""Draw pairs of atoms with probabilities given by their weights."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_pairs(
    weights: Tensor, count: int, *, self_pairs: bool, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Draw pairs with replacement, with probabilities proportional to :math:`w_i w_j`.

    Without pairs of an atom with itself, the first atom is drawn with probabilities proportional to
    :math:`w_i (1 - w_i)`, and then the second among the others with probabilities
    :math:`w_j / (1 - w_i)`. Memory does not grow with the number of all pairs.

    Args:
        weights: A ``B x n`` tensor of weights.
        count: Number of pairs drawn from each cloud.
        self_pairs: Whether the two atoms may be the same.
        generator: Random number generator.

    Returns:
        The indices of the first and of the second atoms, both ``B x count``.
    """
    weights = weights.detach()
    shape = (2, len(weights), count)
    fractions = torch.rand(shape, generator=generator, dtype=weights.dtype, device=weights.device)
    ends = weights.cumsum(-1)
    total = ends[:, -1:]
    if self_pairs:
        first, second = (_step(ends, fraction * total) for fraction in fractions)
        return first, second
    before, after = torch.nn.functional.pad(ends[:, :-1], (1, 0)), total - ends
    steps = (weights * (before + after)).cumsum(-1)
    first = _step(steps, fractions[0] * steps[:, -1:])
    below, above = before.gather(-1, first), after.gather(-1, first)
    target = fractions[1] * (below + above)
    lower = (target < below) | (above == 0)
    beyond = ends.gather(-1, first) + (target - below)
    target = torch.where(lower, torch.minimum(target, _just_below(below)), beyond)
    return first, _step(ends, target)


def _step(ends: Tensor, targets: Tensor) -> Tensor:
    """Return the index of the step on which each target lies, never one of length zero."""
    inside = torch.minimum(targets, _just_below(ends[:, -1:]))
    return torch.searchsorted(ends, inside, right=True)


def _just_below(values: Tensor) -> Tensor:
    return torch.nextafter(values, torch.zeros_like(values))
