"""Search over recipes: a few ingredients of many, whose fractions sum to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from math import comb
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from gp_distributions.bayesopt.alternation import AlternatingSearch, Alternation
from gp_distributions.bayesopt.decoder import Decoder
from gp_distributions.bayesopt.parts import ContinuousPart, Plain
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.kernels.default import in_units_of
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import Data, double, integer
from gp_distributions.measures.frames import check_fractions, read_ingredients
from gp_distributions.measures.tables import index_names

# Shares of an ingredient that a move replaces by another. Two are enough where gradients follow.
_SHARES = (1.0, 0.3, 0.1, 0.03)
# Smallest gain of a move that gradients follow, relative to a value of less than one.
_LEAST = 0.01
# Random recipes in whose spread default kernels measure properties.
_KNOWN = 200
# Random recipes drawn at a time, sets of ingredients drawn for each, and steps of its random walk.
_PIECE, _SETS, _STEPS = 64, 100, 100
# Halvings of an interval, after which it is as small as rounding errors.
_HALVINGS = 60
# Fractions that gradients leave of an ingredient that the best recipe does not have.
_SMALL = 1e-6
# Relative tolerance of sums and costs.
_ROUNDING = 1e-12


class RecipeSearch(ContinuousPart, AlternatingSearch):
    r"""Search over recipes of at most a few ingredients; a candidate is a dictionary of fractions.

    The fractions :math:`w` of the ``N`` ingredients satisfy

    .. math::
        \sum_i w_i = 1, \qquad |\{i: w_i > 0\}| \le k, \qquad l_i \le w_i \le u_i, \qquad
        \sum_i c_i w_i \le \text{budget},

    up to rounding errors. The first candidates are random. Later ones start from the best recipes so far
    and random ones: whole ingredients or shares of one are replaced by another as long as the
    acquisition function increases, and BoTorch's ``optimize_acqf`` then finds the best fractions of the
    same ingredients. The inputs of models are the fractions of all ingredients, from which the
    :attr:`input_transform` makes clouds, as :meth:`PointClouds.from_fractions` does. The default model
    has the maximum mean discrepancy (:class:`MMD`) of properties in units of their spread.

    A recipe that you tell may break all limits but the sum.

    Args:
        ingredients: A data frame with a row for each ingredient and columns of properties, or an
            ``N x d`` array, whose ingredients are named 0 to ``N - 1``.
        max_ingredients: Largest number of ingredients of a recipe, :math:`k`. Default: ``N``.
        name: Name of the column of names of ingredients. Default: the index of a pandas frame.
        columns: Names of the columns of properties. Default: all but ``name``.
        bounds: Lower and upper bounds of the fractions of some ingredients, by their names. Default: 0
            and 1. A recipe has all ingredients whose lower bound is not zero.
        min_fraction: Smallest fraction of an ingredient that a recipe has: one number, or a dictionary
            of those of some ingredients, by their names.
        costs: The ``N`` costs of ingredients in their order, such as a column of the frame; or a series
            of pandas with their names in any order.
        budget: Largest cost of a recipe, :math:`\sum_i c_i w_i`.
        num_restarts: Number of starts of each optimisation. Half of them are the best recipes so far.
        raw_samples: Number of random recipes from which the other starts are chosen.

    Attributes:
        names: The names of the ingredients.
        input_transform: The :class:`Decoder` of fractions of all ingredients, ``N`` numbers.

    Raises:
        TypeError: If ``name`` is missing for a frame without an index, or only one of ``costs`` and
            ``budget`` is given.
        ValueError: If ingredients, bounds, costs or a number are not valid, or no recipe satisfies all
            limits.

    Example:
        >>> import pandas as pd
        >>> from gp_distributions import RecipeSearch, ShapeOptimizer
        >>> table = pd.DataFrame({"fat": [81, 0, 1], "sugar": [0, 100, 1], "price": [9, 1, 1]})
        >>> table.index = ["butter", "sugar", "flour"]
        >>> search = RecipeSearch(
        ...     table, 2, columns=["fat", "sugar"], bounds={"flour": (0.5, 0.9)},
        ...     costs=table["price"], budget=3,
        ... )
        >>> recipes = ShapeOptimizer(search).ask(5)
        >>> all(0.5 <= recipe["flour"] <= 0.9 and len(recipe) <= 2 for recipe in recipes)
        True
        >>> all(recipe.get("butter", 0.0) <= 0.25 for recipe in recipes)  # at a cost of 3
        True
    """

    dim: int
    clouds: PointClouds

    def __init__(
        self,
        ingredients: Any,
        max_ingredients: int | None = None,
        *,
        name: str | None = None,
        columns: Sequence[str] | None = None,
        bounds: Mapping[Any, tuple[float, float]] | None = None,
        min_fraction: float | Mapping[Any, float] = 0.0,
        costs: Data | None = None,
        budget: float | None = None,
        num_restarts: int = 4,
        raw_samples: int = 256,
    ) -> None:
        if (costs is None) != (budget is None):
            raise TypeError(f"Expected costs and budget together, got {costs!r:.80} and {budget}.")
        self.names, properties, _ = read_ingredients(ingredients, name, columns)
        self.properties = double(properties, "Ingredients")
        size, self.dim = self.properties.shape
        most = size if max_ingredients is None else integer(max_ingredients, "max_ingredients")
        self.num_restarts = integer(num_restarts, "num_restarts")
        self.raw_samples = integer(raw_samples, "raw_samples", least=self.num_restarts)
        if not isinstance(min_fraction, Mapping):
            min_fraction = dict.fromkeys(self.names, min_fraction)
        self.min_fraction = self._limits({n: (least, 1) for n, least in min_fraction.items()})[0]
        self.bounds = self._limits(bounds or {})
        least = self.bounds[0].maximum(self.min_fraction).sort()[0].cumsum(0)
        self.max_ingredients = min(most, int((least <= 1 + _ROUNDING).sum()))
        if (known := index_names(costs)) and not known.counted:
            costs = costs.reindex(self.names)  # type: ignore[union-attr]
        self.costs = self.bounds.new_zeros(size) if costs is None else double(costs, "costs")
        if self.costs.shape != (size,) or not self.costs.isfinite().all():
            raise ValueError(
                f"Expected a finite cost of each of {size} ingredients, got {costs!r}."
            )
        self.budget = 0.0 if budget is None else float(budget)
        self._cheapest = self._cheapest_recipe()
        self.input_transform = Decoder(self._decode)
        self.clouds = self.input_transform.clouds(self.inputs(self.initial(_KNOWN, 0)))

    def _limits(self, given: Mapping[Any, tuple[float, float]]) -> Tensor:
        """Return lower and upper bounds of all fractions, given those of some."""
        limits = self.properties.new_tensor([[0.0], [1.0]]).repeat(1, len(self.names))
        for name, pair in given.items():
            if name not in self.names or not 0 <= pair[0] <= pair[1] <= 1:
                raise ValueError(
                    "Expected bounds 0 <= low <= high <= 1 of ingredients, got "
                    f"{pair} of {name!r}; ingredients: {self.names}."
                )
            limits[:, self.names.index(name)] = limits.new_tensor(pair)
        return limits

    def _limits_of(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the limits of the fractions of recipes that have all chosen ingredients."""
        return self.bounds[0].maximum(self.min_fraction) * chosen, self.bounds[1] * chosen

    def describe(self) -> dict[str, Any]:
        """Return the kind of search, a digest of the ingredients, and the limits."""
        return {
            "kind": "recipes",
            "ingredients": self.properties.tolist(),
            "names": list(map(str, self.names)),
            "max_ingredients": self.max_ingredients,
            "bounds": self.bounds.tolist(),
            "min_fraction": self.min_fraction.tolist(),
            "costs": self.costs.tolist(),
            "budget": self.budget,
        }

    def initial(self, count: int, seed: int) -> list[list[float]]:
        """Returns random recipes, of which the first are those of a smaller ``count``.

        Sets of ingredients are uniform among those of which there are recipes within all limits; if each
        of 100 sets has none, a recipe has the ingredients of the cheapest. Fractions are uniform within
        the limits, by 100 steps of a random walk, each along one edge of the simplex.

        Source: Smith 1984 (hit and run).
        """
        pieces = [self._piece(seed, start) for start in range(0, count, _PIECE)]
        return torch.cat(pieces)[:count].tolist()

    def _piece(self, *seeds: int) -> Tensor:
        """Draw a fixed number of random recipes, on which rounding errors thus do not depend."""
        size, fixed = len(self.names), int(self._required.sum())
        optional = range(self.max_ingredients - fixed + 1)
        ways = [float(comb(size - fixed, number)) for number in optional]
        shares = self.bounds.new_tensor(ways).cumsum(0) / sum(ways)
        numbers = np.random.default_rng(seeds).random((_SETS + _STEPS, _PIECE, 1 + size))
        drawn = torch.from_numpy(numbers)
        recipes = self._cheapest.repeat(_PIECE, 1)
        chosen, missing = recipes > 0, recipes.new_ones(_PIECE, dtype=torch.bool)
        for each in drawn[:_SETS]:
            if not missing.any():
                break
            number = fixed + (each[:, :1] > shares).sum(-1, keepdim=True)
            given = self._places(each[:, 1:]) < number
            repaired, valid = self._repaired(given / number, given)
            new = missing & valid
            recipes[new], chosen[new], missing = repaired[new], given[new], missing & ~new
        low, high = self._limits_of(chosen)
        for each in drawn[_SETS:] if size > 1 else ():
            # As much more of one ingredient as less of another, uniformly within the limits of both.
            both = each[:, 1:].where(chosen, 0.0).topk(2).indices
            parts = [limits.gather(-1, both).unbind(-1) for limits in (recipes, low, high)]
            (one, other), (low1, low2), (high1, high2) = parts
            least, most = (low1 - one).maximum(other - high2), (high1 - one).minimum(other - low2)
            more = torch.lerp(least, most, each[:, 0])
            moved = recipes.scatter(-1, both, torch.stack([one + more, other - more], -1))
            inside = (moved * self.costs).sum(-1, keepdim=True) <= self.budget
            recipes = moved.where(inside, recipes)
        return self._repaired(recipes, chosen)[0]

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the fractions of all ingredients as one tensor."""
        return self.bounds.new_tensor(candidates).reshape(-1, len(self.names))

    def show(self, candidate: list[float]) -> dict[Any, float]:
        """Returns the fractions of the ingredients that the recipe has, by their names."""
        named = zip(self.names, candidate, strict=True)
        return {name: fraction for name, fraction in named if fraction > 0}

    def plain(self, candidate: Any) -> list[float]:
        """Returns the fractions of all ingredients as a list."""
        if isinstance(candidate, Mapping):
            if unknown := [name for name in candidate if name not in self.names]:
                raise ValueError(
                    f"Expected ingredients among {self.names}, got {unknown} in {candidate!r:.200}."
                )
            candidate = [candidate.get(name, 0.0) for name in self.names]
        recipe = double(candidate, "The recipe")
        check_fractions(recipe.unsqueeze(0), self.names)
        return recipe.tolist()

    @cached_property
    def _default_distance(self) -> ScaledDistance:
        # It is smooth in the fractions of a few fixed atoms, of which quantiles are steps.
        distance = in_units_of(self.clouds, MMD(self.dim), sizes=False)
        distance.adapt(self.clouds.pack())
        return distance

    @property
    def moving(self) -> list[int]:
        """No columns, since fractions depend on each other."""
        return []

    @property
    def limits(self) -> Tensor:
        """The bounds of no columns."""
        return self.bounds[:, :0]

    @property
    def _required(self) -> Tensor:
        """Which ingredients all recipes have."""
        return self.bounds[0] > 0

    def _places(self, values: Tensor) -> Tensor:
        """Return the place of each ingredient in increasing order, after those that are required."""
        first = values - self._required.to(values)
        return first.argsort(dim=-1, stable=True).argsort(dim=-1)

    def _decode(self, fractions: Tensor) -> tuple[Tensor, Tensor]:
        """Return as many ingredients of each recipe as the longest has, and their fractions."""
        most = int((fractions > 0).sum(-1).max())
        weights, places = fractions.topk(max(most, 1), dim=-1)
        return self.properties.to(fractions)[places], weights

    def _cheapest_recipe(self) -> Tensor:
        """Return the cheapest recipe, by mixed-integer linear programming.

        Raises:
            ValueError: If no recipe satisfies all limits.
        """
        size, (low, high) = len(self.names), self.bounds.numpy()
        least, ones = np.maximum(low, self.min_fraction.numpy()), np.ones(size)
        eye, none = np.eye(size), np.zeros(size)
        found = milp(
            np.concatenate([self.costs.numpy(), none]),
            integrality=np.concatenate([none, ones]),
            bounds=Bounds(np.concatenate([none, low > 0]), np.ones(2 * size)),
            constraints=[
                LinearConstraint(np.concatenate([ones, none]), 1, 1),
                LinearConstraint(np.concatenate([none, ones]), 0, self.max_ingredients),
                LinearConstraint(np.hstack([eye, -np.diag(high)]), -np.inf, 0),
                LinearConstraint(np.hstack([eye, -np.diag(least)]), 0, np.inf),
            ],
        )
        if found.x is None:
            raise ValueError(
                f"Expected limits that a recipe can satisfy, got none with at most "
                f"{self.max_ingredients} ingredients within the bounds. Widen bounds, raise "
                "max_ingredients or lower min_fraction."
            )
        recipe = torch.from_numpy(found.x[:size] * (found.x[size:] > 0.5))
        if not self._repaired(recipe[None], recipe[None] > 0)[1]:
            raise ValueError(
                f"Expected budget >= {found.fun:.6g}, the cost of the cheapest recipe, "
                f"{self.show(recipe.tolist())}, got {self.budget:.6g}."
            )
        return recipe

    def _repaired(self, recipes: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return recipes of chosen ingredients that satisfy all limits, near to given ones.

        Fractions move by one amount, as far as their bounds allow, so that they sum to one. Then recipes
        move towards the cheapest of the same ingredients, until they cost no more than the budget.

        Args:
            recipes: ``R x N`` fractions.
            chosen: Which ingredients they may have.

        Returns:
            The recipes, and for which of them there is one.
        """
        low, high = self._limits_of(chosen)
        valid = (low <= high).all(-1) & (chosen | ~self._required).all(-1)
        valid &= (low.sum(-1) <= 1 + _ROUNDING) & (high.sum(-1) >= 1 - _ROUNDING)
        left = (low - recipes).amin(-1, keepdim=True)
        right = (high - recipes).amax(-1, keepdim=True)
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            over = (recipes + middle).clamp(low, high).sum(-1, keepdim=True) > 1
            left, right = torch.where(over, left, middle), torch.where(over, middle, right)
        found = (recipes + right).clamp(low, high)
        order = self.costs.argsort()
        room = (high - low)[:, order]
        rest = 1 - low.sum(-1, keepdim=True) - room.cumsum(-1) + room
        cheap = low + rest.clamp_min(0).minimum(room)[:, order.argsort()]
        cost, least = found @ self.costs, cheap @ self.costs
        valid &= least <= self.budget + _ROUNDING * self.costs.abs().max()
        share = torch.where(cost > self.budget, (cost - self.budget) / (cost - least), 0.0)
        return found + share.clamp_max(1).unsqueeze(-1) * (cheap - found), valid

    def alternation(self, acquisition: AcquisitionFunction, taken: Tensor) -> Alternation:
        """Returns the exchange of ingredients alone, as gradients follow it."""
        every = slice(0, len(self.names))
        exchange = partial(self.neighbours, shares=_SHARES[:2])
        return Alternation(acquisition, [(every, exchange)], [], self.limits, taken, 0, _LEAST)

    def reached(self, alternation: Alternation, state: Tensor) -> list[float]:
        """Returns the best fractions of the ingredients of a recipe, by gradients."""
        both = torch.stack([self._polished(alternation.value, state), state])
        return both[alternation.values(both).argmax()].tolist()

    def within(self, candidate: list[float]) -> list[float]:
        """Returns a recipe within all limits, the cheapest if there is none of the same ingredients."""
        known = self.inputs([candidate])
        chosen = (self._places(-known) < self.max_ingredients) & ((known > 0) | self._required)
        repaired, valid = self._repaired(known, chosen)
        return (repaired[0] if valid else self._cheapest).tolist()

    def neighbours(
        self, states: Tensor, *, shares: Sequence[float] = _SHARES
    ) -> tuple[Tensor, Tensor]:
        """Returns recipes in which an ingredient, or a share of it, is replaced by another."""
        states = states.to(self.bounds)
        eye = torch.eye(len(self.names)).to(states)
        amounts, givers = states.topk(self.max_ingredients, dim=-1)
        steps = eye[:, None] - eye[givers][:, :, None, None]  # taker, share
        moves = amounts[:, :, None, None, None] * states.new_tensor(shares)[:, None] * steps
        near = (states[:, None, None, None] + moves).flatten(1, -2)
        moved = (near != states[:, None]).any(-1) & ((near > 0).sum(-1) <= self.max_ingredients)
        near[moved], valid = self._repaired(near[moved], near[moved] > 0)
        return near, moved.masked_scatter(moved, valid)

    def _polished(self, acquisition: Any, recipe: Tensor) -> Tensor:
        """Return the best fractions of the ingredients of a recipe, by gradients."""
        chosen = recipe > 0
        places = chosen.nonzero().squeeze(-1)
        if len(places) < 2:
            return recipe
        bounds = self.bounds.clone()
        bounds[0, chosen] = self._limits_of(chosen)[0][chosen]
        budget = [(places, -self.costs[places], -self.budget)]
        found, _ = optimize_acqf(
            acquisition,
            bounds,
            q=1,
            num_restarts=1,
            batch_initial_conditions=recipe[None, None],
            fixed_features=dict.fromkeys((~chosen).nonzero().squeeze(-1).tolist(), 0.0),
            equality_constraints=[(places, torch.ones_like(recipe[places]), 1.0)],
            inequality_constraints=budget if self.costs.any() else None,
            retry_on_optimization_warning=False,
            options={"maxiter": 100},
        )
        repaired, valid = self._repaired(found, found > _SMALL)
        return repaired[0] if valid else recipe
