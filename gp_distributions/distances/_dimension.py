"""The dimension of the atoms, as callers give it."""

from __future__ import annotations

import operator


def whole_dimension(dim: int) -> int:
    """Take a dimension.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it is less than one.
    """
    try:
        number = operator.index(dim)
    except TypeError as error:
        raise TypeError(_message(dim)) from error
    if isinstance(dim, bool):
        raise TypeError(_message(dim))
    if number < 1:
        raise ValueError(_message(dim))
    return number


def _message(dim: object) -> str:
    return (
        f"Expected a whole number of dimensions, dim >= 1, got {dim!r}. Give that of the clouds, "
        "clouds.dim."
    )
