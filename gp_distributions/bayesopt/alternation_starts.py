"""Where an alternation starts: the best candidates so far, and others with large values."""

from __future__ import annotations

import torch
from botorch.optim.initializers import initialize_q_batch, sample_truncated_normal_perturbations
from torch import Tensor

from gp_distributions.bayesopt.alternation import Alternation, States

# Standard deviation of perturbations of the best candidates, relative to the range between bounds.
_AROUND_BEST = 0.1


def starts(alternation: Alternation, leading: States, random: States, num_restarts: int) -> States:
    """Return the states from which an acquisition function is maximised.

    BoTorch's heuristic draws the starts beside the best candidates by their values, from random ones and
    from as many perturbations of the best candidates in their continuous parts.

    Args:
        alternation: The alternation.
        leading: The best candidates so far.
        random: Random candidates.
        num_restarts: Number of starts.

    Returns:
        At most ``num_restarts`` states, with ``leading`` first.
    """
    pool = States.joined([random, *_perturbed(alternation, leading, len(random))])
    values = alternation.values(pool)
    chosen = _chosen(values, num_restarts - len(leading))
    return States.joined([leading, pool[chosen]])


def _perturbed(alternation: Alternation, leading: States, least: int) -> list[States]:
    """Returns at least the given number of candidates close to the best ones."""
    if not alternation.moving or not len(leading):
        return []
    count = -(-least // len(leading))
    found = []
    for state in leading.rows.split(1):
        near = sample_truncated_normal_perturbations(
            state[:, alternation.moving].clamp(*alternation.limits),
            n_discrete_points=count,
            sigma=_AROUND_BEST,
            bounds=alternation.limits,
        )
        rows = state.repeat(len(near), 1)
        rows[:, alternation.moving] = near
        found.append(rows)
    return [States(torch.cat(found), leading.choices.repeat_interleave(count, dim=0))]


def _chosen(values: Tensor, count: int) -> Tensor:
    """Returns the positions of starts, drawn by their values, with the best among them."""
    left = values.isfinite().nonzero().squeeze(-1)
    if count == 0 or len(left) <= count or not bool(values[left].std() > 0):
        return left[:count]
    found, _ = initialize_q_batch(left.to(values).reshape(-1, 1, 1), values[left], count)
    return found.flatten().long()
