"""Searches over one number or one category, the parts of a mixed search beside shapes."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from gp_distributions.bayesopt.records import read_numbers
from gp_distributions.bayesopt.search import FiniteSearch, Plain
from gp_distributions.bayesopt.searches import DesignSearch
from gp_distributions.measures.covariates import Level


class IntervalSearch(DesignSearch):
    """Search over an interval; a candidate is a number, which the model sees scaled to [0, 1].

    Args:
        low: The lower bound.
        high: The upper bound.

    Raises:
        ValueError: If the bounds are not finite, or the lower is not below the upper bound.

    Example:
        >>> from gp_distributions.bayesopt.covariate_searches import IntervalSearch
        >>> IntervalSearch(0.0, 10.0).inputs([2.5]).tolist()
        [[0.25]]
    """

    def __init__(self, low: float, high: float) -> None:
        low, high = float(low), float(high)
        if not low < high or not abs(low) < float("inf") > abs(high):
            raise ValueError(
                f"Expected finite bounds, the lower below the upper one, got ({low}, {high})."
            )
        super().__init__(None, torch.tensor([[0.0], [1.0]], dtype=torch.float64))
        self.low, self.high = low, high

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and its bounds."""
        return {"kind": "interval", "bounds": [self.low, self.high]}

    def initial(self, count: int, seed: int) -> list[Any]:
        """Returns the first ``count`` points of a scrambled Sobol sequence."""
        return self.read_inputs(self.bounds.new_tensor(super().initial(count, seed)))

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the numbers, scaled to [0, 1], as a column."""
        numbers = self.bounds.new_tensor(list(candidates)).unsqueeze(-1)
        return ((numbers - self.low) / (self.high - self.low)).clamp(0, 1)

    def read_inputs(self, inputs: Tensor) -> list[Any]:
        """Converts a column of scaled numbers to numbers."""
        width = self.high - self.low
        return [min(self.low + width * x, self.high) for x in inputs.squeeze(-1).tolist()]

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[Any]:
        """Finds numbers with ``optimize_acqf``."""
        found = super().optimize(acquisition, q, taken, best, seed)
        return self.read_inputs(self.bounds.new_tensor(found))

    def show(self, candidate: Any) -> Any:
        """Returns the number itself."""
        return candidate

    def plain(self, candidate: Any) -> Any:
        """Returns the number as a ``float``."""
        try:
            number = float(candidate)
        except (TypeError, ValueError):
            number = float("nan")
        if not self.low <= number <= self.high:
            raise ValueError(
                f"Expected a number from {self.low} to {self.high}, got {reprlib.repr(candidate)}."
            )
        return number

    def read(self, data: Any) -> Any:
        """Returns the number if it is in the interval."""
        return self.plain(read_numbers([data], 1)[0])


class CategorySearch(FiniteSearch):
    """Search over categories; a candidate is a category, whose position the model sees.

    Args:
        levels: The categories.

    Raises:
        ValueError: If there are fewer than two categories, or a category occurs twice.

    Example:
        >>> from gp_distributions.bayesopt.covariate_searches import CategorySearch
        >>> CategorySearch(["steel", "wood"]).inputs(["wood"]).tolist()
        [[1.0]]
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = tuple(levels)
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"Expected at least two different categories, got {list(levels)}.")

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and the categories."""
        return {"kind": "categories", "levels": list(self.levels)}

    def choices(self) -> tuple[Level, ...]:
        """Returns the categories."""
        return self.levels

    def initial(self, count: int, seed: int) -> list[Any]:
        """Returns the first ``count`` categories in a random order."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.levels), generator=generator)[:count]
        return [self.levels[i] for i in order.tolist()]

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the positions of the categories as a column."""
        positions = [self.levels.index(level) for level in candidates]
        return torch.tensor(positions, dtype=torch.float64).unsqueeze(-1)

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[Any]:
        """Evaluates the acquisition function at all categories that are not taken."""
        left = [level for level in self.levels if level not in taken]
        if q > 1 or not left:
            raise ValueError(f"Expected q = 1 and a category that is left of {left}, got q = {q}.")
        with torch.no_grad():
            values = acquisition(self.inputs(left).unsqueeze(-2))
        return [left[int(values.argmax())]]

    def show(self, candidate: Level) -> Level:
        """Returns the category itself."""
        return candidate

    def plain(self, candidate: Any) -> Level:
        """Returns the category as it is in the list of categories."""
        value = candidate.item() if hasattr(candidate, "item") else candidate
        for level in self.levels:
            if type(level) is type(value) and level == value:
                return level
        raise ValueError(
            f"Expected a category from {list(self.levels)}, got {reprlib.repr(candidate)}."
        )

    def read(self, data: Any) -> Level:
        """Returns the category if it is one of the search."""
        return self.plain(data)
