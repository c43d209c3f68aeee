"""Several candidates, found one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.exceptions import UnsupportedError
from torch import Tensor

FoundT = TypeVar("FoundT")


def one_by_one(
    acquisition: AcquisitionFunction,
    q: int,
    find: Callable[[list[FoundT]], FoundT],
    inputs: Callable[[list[FoundT]], Tensor],
) -> list[FoundT]:
    """Return ``q`` candidates, each found with the previous ones as pending points.

    Args:
        acquisition: The acquisition function, whose pending points are restored afterwards.
        q: Number of candidates.
        find: Function that maximises the acquisition function, given the previous candidates.
        inputs: Function that converts candidates to inputs of the acquisition function.

    Raises:
        UnsupportedError: If the acquisition function is one-shot, or ``q > 1`` and it does not support
            pending points.
    """
    if isinstance(acquisition, OneShotAcquisitionFunction):
        raise UnsupportedError(
            "Expected an acquisition function that is not one-shot, since its fantasies cannot be "
            f"optimised here, got {type(acquisition).__name__}. Use, for example, "
            "qLogNoisyExpectedImprovement."
        )
    before = getattr(acquisition, "X_pending", None)
    found: list[FoundT] = []
    try:
        for _ in range(q):
            if found:
                pending = inputs(found)
                pending = pending if before is None else torch.cat([before, pending.to(before)])
                acquisition.set_X_pending(pending)
            found.append(find(found))
    finally:
        if q > 1:
            acquisition.set_X_pending(before)
    return found
