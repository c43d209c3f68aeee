"""Numbers and categories, the parts of a mixed search beside shapes."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.bayesopt.search import Box, FinitePart, Plain
from gp_distributions.measures.arrays import is_missing
from gp_distributions.measures.covariates import Level
from gp_distributions.measures.encoding import CovariateEncoding, Levels, Scaling


class Interval(Box):
    """An interval as a part of a :class:`MixedSearch`; a candidate is a number.

    A tuple of two numbers is read as an interval. A model sees the number scaled to [0, 1].

    Args:
        low: The lower bound.
        high: The upper bound.

    Raises:
        ValueError: If the bounds are not finite, or the lower is not below the upper bound.

    Example:
        >>> from gp_distributions import MixedSearch
        >>> from gp_distributions.bayesopt import Interval
        >>> MixedSearch(angle=Interval(0.0, 10.0)).inputs([{"angle": 2.5}]).tolist()
        [[0.25]]
    """

    def __init__(self, low: float, high: float) -> None:
        low, high = float(low), float(high)
        if not low < high or not abs(low) < float("inf") > abs(high):
            raise ValueError(
                f"Expected finite bounds, the lower below the upper one, got ({low}, {high})."
            )
        self.bounds = torch.tensor([[low], [high]], dtype=torch.float64)

    def block(self, name: str) -> CovariateEncoding:
        """Returns the encoding of a single column."""
        low, high = self.bounds.flatten().tolist()
        return CovariateEncoding({name: Scaling(low, high - low)})

    def describe(self) -> dict[str, Any]:
        """Return the kind of part and its bounds."""
        return {"kind": "interval", "bounds": self.bounds.flatten().tolist()}

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the numbers as a column."""
        return self.bounds.new_tensor(list(candidates)).unsqueeze(-1)

    def read_inputs(self, inputs: Tensor) -> list[Any]:
        """Converts a column to numbers within the bounds."""
        return [number for (number,) in super().read_inputs(inputs)]

    def plain(self, candidate: Any) -> float:
        """Returns the number as a ``float``."""
        low, high = self.bounds.flatten().tolist()
        try:
            number = float(candidate)
        except (TypeError, ValueError):
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(
                f"Expected a number from {low} to {high}, got {reprlib.repr(candidate)}."
            )
        return number


class Categories(FinitePart):
    """Categories as a part of a :class:`MixedSearch`; a candidate is a category.

    A list or an array is read as categories, except for one of two numbers, which could also be meant as
    an interval. A model sees the position of the category.

    Args:
        levels: The categories: text, booleans or numbers, in a list, an array or a column of a frame.

    Raises:
        TypeError: If a category is neither text nor a boolean nor a number.
        ValueError: If there are fewer than two categories, or one is missing or occurs twice.

    Example:
        >>> from gp_distributions import MixedSearch
        >>> from gp_distributions.bayesopt import Categories
        >>> search = MixedSearch(coats=Categories([1, 2]), material=["oak", "ash"])
        >>> search.inputs([{"coats": 2, "material": "oak"}]).tolist()
        [[1.0, 0.0]]
    """

    def __init__(self, levels: Iterable[Level]) -> None:
        found = tuple(_as_python(level) for level in levels)
        for level in found:
            if is_missing(level):
                raise ValueError(f"Expected categories, got the missing value {level!r}.")
            if not isinstance(level, str | bool | int | float):
                raise TypeError(f"Expected categories as text, booleans or numbers, got {level!r}.")
        if len(found) < 2 or len(set(found)) < len(found):
            raise ValueError(
                f"Expected at least two different categories, got {reprlib.repr(list(found))}. Use "
                "numpy.unique for the categories of a column."
            )
        self.levels = found

    def block(self, name: str) -> CovariateEncoding:
        """Returns the encoding of a single column."""
        return CovariateEncoding({name: Levels(self.levels)})

    def describe(self) -> dict[str, Any]:
        """Return the kind of part and the categories."""
        return {"kind": "categories", "levels": list(self.levels)}

    def choices(self) -> tuple[Level, ...]:
        """Returns the categories."""
        return self.levels

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the positions of the categories as a column."""
        positions = [self.levels.index(level) for level in candidates]
        return torch.tensor(positions, dtype=torch.float64).unsqueeze(-1)

    def plain(self, candidate: Any) -> Level:
        """Returns the category as it is in the list of categories."""
        value = _as_python(candidate)
        for level in self.levels:
            # True equals 1.
            if isinstance(level, bool) == isinstance(value, bool) and level == value:
                return level
        raise ValueError(
            f"Expected a category from {list(self.levels)}, got {reprlib.repr(candidate)}."
        )


def _as_python(value: Any) -> Any:
    """Returns numbers and text of NumPy and PyTorch as those of Python."""
    single = isinstance(value, np.generic | np.ndarray | Tensor) and np.size(value) == 1
    return value.item() if single else value
