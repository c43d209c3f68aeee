"""The box around the best design in which a search proposes, by the rules of TuRBO."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Sides in units of the bounds: at the start, the largest, and below which a region starts anew.
_START, _LARGEST, _SMALLEST = 0.8, 1.6, 0.5**7
# Rounds that improve in a row until the region grows, and the least relative improvement that counts.
_SUCCESSES, _GAIN = 10, 1e-3
# Evaluations without improvement until it shrinks: as many as numbers of a design, at least these.
_FAILURES = 4


def side_after(values: Sequence[float], first: int, q: int, num_parameters: int) -> float:
    """Return the side of the region after some evaluations, in units of the bounds.

    It doubles after ten rounds in a row of which each improves the best value, and halves after as many
    evaluations in a row without improvement as a design has numbers. Where it would be too small to
    hold anything new, it starts anew.

    Args:
        values: The value of each evaluation in order, ``-inf`` where a design is not feasible.
        first: Number of first evaluations, before the region is used.
        q: Number of evaluations of a round.
        num_parameters: Number of parameters.

    Source: Eriksson, Pearce, Gardner, Turner and Poloczek 2019 (TuRBO), with the settings of BoTorch's
    tutorial.
    """
    patience = math.ceil(max(_FAILURES / q, num_parameters / q))
    side, successes, failures = _START, 0, 0
    best = max(values[:first], default=-math.inf)
    for start in range(first, len(values), q):
        found = max(values[start : start + q])
        improves = found > best + _GAIN * abs(best) if math.isfinite(best) else found > best
        successes, failures = (successes + 1, 0) if improves else (0, failures + 1)
        best = max(best, found)
        if successes == _SUCCESSES:
            side, successes = min(2 * side, _LARGEST), 0
        elif failures == patience:
            side, failures = side / 2, 0
            if side < _SMALLEST:
                side = _START
    return side


def region(bounds: Tensor, centre: Tensor, side: float) -> Tensor:
    """Return the bounds of the region around a design within bounds, ``2 x k``."""
    half = side * (bounds[1] - bounds[0]) / 2
    return torch.stack([centre - half, centre + half]).clamp(*bounds)
