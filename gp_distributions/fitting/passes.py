"""Sums over pieces of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tqdm import tqdm

from gp_distributions.models.pieces import Pieces

State = TypeVar("State")
Sums = TypeVar("Sums")

# A progress bar appears after so many seconds.
_DELAY = 3.0


def sums_over_pieces(
    task: Callable[..., Sums],
    state: State,
    data: Pieces,
    *,
    progress: bool = True,
) -> Sums:
    """Add the results of a function over all pieces of data, in the order of the pieces.

    Args:
        task: Function of a state and of what ``data.piece`` returns. It can be pickled, and depends on
            nothing else.
        state: What the function needs besides the data; it can be pickled.
        data: Data in pieces.
        progress: Whether to show a progress bar if it takes more than a few seconds.

    Returns:
        The sum of the results.
    """
    bar: Any = tqdm(
        range(data.num_pieces), desc="Pieces", delay=_DELAY, disable=None if progress else True
    )
    total: Sums | None = None
    for index in bar:
        part = task(state, *data.piece(index))
        total = part if total is None else total + part  # type: ignore[operator]
    assert total is not None
    return total
