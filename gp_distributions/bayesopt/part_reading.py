"""What a mixed search accepts as a part."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from gp_distributions.bayesopt.covariate_parts import Categories, Interval
from gp_distributions.bayesopt.search import ContinuousPart, FinitePart, Part


def read_part(part: Any, name: str) -> Part:
    """Return a part of a mixed search.

    Args:
        part: A part; a tuple of two numbers, the bounds of an interval; or categories, in a list, an
            array or a column of a data frame.
        name: Name of the part.

    Raises:
        TypeError: If it is none of these.
        ValueError: If the bounds or the categories are not valid, or could be meant as either.
    """
    if isinstance(part, FinitePart | ContinuousPart):
        return part
    listed = isinstance(part, Sequence) and not isinstance(part, str | bytes)
    if not listed and not (hasattr(part, "__array__") and np.ndim(part) == 1):
        raise TypeError(
            f"Part {name!r}: expected a PoolSearch, DesignSearch or FreeSearch, an interval "
            f"(low, high), or a list of categories, got {type(part).__name__}. For a fixed set of "
            "clouds use PoolSearch(clouds)."
        )
    values = list(part) if listed else np.asarray(part).tolist()
    try:
        if len(values) != 2 or not all(map(_is_number, values)):
            return Categories(values)
        if isinstance(part, tuple):
            return Interval(*values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Part {name!r}: {error}") from None
    raise ValueError(
        f"Part {name!r}: expected an interval as a tuple, or categories, got the {type(part).__name__} "
        f"{values}. Use {tuple(values)} for the interval, or Categories({values}) for two categories."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
