"""Weights of the members of a mixture."""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike
from torch import Tensor


def normalized_weights(weights: Tensor | ArrayLike | None, number: int) -> Tensor:
    """Divide weights by their sum.

    Args:
        weights: A weight for each member. Default: equal weights.
        number: Number of members.

    Returns:
        A detached tensor of shape ``number`` in double precision.

    Raises:
        ValueError: If the number of weights differs from that of members, or weights are negative, not
            finite or all zero.

    Example:
        >>> from gp_distributions.models.mixture_weights import normalized_weights
        >>> normalized_weights([1, 3], 2).tolist()
        [0.25, 0.75]
    """
    given = torch.ones(number) if weights is None else torch.as_tensor(weights).detach()
    given = given.double()
    if given.shape != (number,):
        raise ValueError(
            f"Expected one weight for each of {number} models, got weights of shape "
            f"{tuple(given.shape)}."
        )
    total = given.sum()
    if not bool((given >= 0).all() & total.isfinite() & (total > 0)):
        raise ValueError(
            "Expected finite weights that are not negative, with a positive sum, got "
            f"{given.tolist()}."
        )
    return given / total
