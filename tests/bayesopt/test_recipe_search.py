"""Searches of recipes: their limits, what they find, and how candidates are stored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.acquisition import PosteriorMean
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gp_distributions import DistributionGP, MMDKernel, PointClouds, RecipeSearch, ShapeOptimizer
from gp_distributions.bayesopt import MixedSearch

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:A not p.d., added jitter"),
]

NAMES = ["water", "salt", "sugar", "oil", "starch", "acid"]
TABLE = pd.DataFrame(
    np.random.default_rng(0).normal(size=(6, 2)), index=NAMES, columns=["polarity", "density"]
)
COSTS = [1.0, 2.0, 3.0, 8.0, 4.0, 9.0]
TIGHT: dict[str, Any] = {
    "bounds": {"water": (0.1, 0.6), "oil": (0.0, 0.3)},
    "min_fraction": 0.05,
    "costs": COSTS,
    "budget": 2.5,
}


def violation(search: RecipeSearch, fractions: list[float]) -> float:
    """The largest violation of a limit, computed anew."""
    w = np.array(fractions)
    low, high = search.bounds.numpy()
    found = [abs(w.sum() - 1), (low - w).max(), (w - high).max(), 0.0]
    found.append((w > 0).sum() - search.max_ingredients)
    found.append(((search.min_fraction.numpy() - w) * (w > 0)).max())
    found.append(w @ search.costs.numpy() - search.budget)
    return float(max(found))


def outcome(recipe: dict[str, float]) -> float:
    """Largest at mean properties that three ingredients reach."""
    w = np.array([recipe.get(name, 0.0) for name in NAMES])
    return -float(np.square(w @ TABLE.to_numpy() - [0.3, -0.2]).sum())


def small_model(search: RecipeSearch) -> Any:
    def make(X: Tensor, Y: Tensor) -> DistributionGP:
        kernel = MMDKernel(2)
        return DistributionGP(X, Y, kernel, input_transform=search.input_transform)

    return make


def optimizer_of(search: RecipeSearch, **options: Any) -> ShapeOptimizer:
    default = {"initial": 5, "restarts": 0, "model": small_model(search), "seed": 2}
    return ShapeOptimizer(search, **default | options)


class TestLimits:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def test_random_and_repaired_recipes_are_feasible(self, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, 7))
        draw = np.random.default_rng(data.draw(st.integers(0, 10**6)))
        low, high = np.sort(draw.uniform(size=(2, size)), axis=0)
        low = np.where(draw.uniform(size=size) < 0.8, 0.0, low / size)
        costs = draw.exponential(size=size)
        try:
            search = RecipeSearch(
                draw.normal(size=(size, 2)),
                data.draw(st.integers(1, size)),
                bounds=dict(enumerate(zip(low, high, strict=True))),
                min_fraction=data.draw(st.sampled_from([0.0, 0.1, {0: 0.2}])),
                costs=costs,
                budget=float(draw.uniform(costs.min(), costs.max())),
            )
        except ValueError:  # no recipe satisfies all limits
            return
        recipes = search.initial(40, 0)
        assert recipes[:10] == search.initial(10, 0)
        states = search.inputs(recipes)
        near, valid = search.neighbours(states)
        chosen = draw.permutation(int(valid.sum()))[:100]
        for recipe in recipes + near[valid][chosen].tolist():
            assert violation(search, recipe) < 1e-9

    def test_all_supports_are_drawn(self) -> None:
        search = RecipeSearch(TABLE, 3)
        recipes = np.array(search.initial(600, 0))
        assert (recipes > 0).any(0).all()
        supports = {tuple(np.flatnonzero(recipe)) for recipe in recipes}
        expected = [s for k in (1, 2, 3) for s in itertools.combinations(range(6), k)]
        assert supports == set(expected)

    @pytest.mark.parametrize("limits", [{"bounds": dict.fromkeys(range(8), (0.0, 0.3))}, {}])
    def test_random_recipes_do_not_depend_on_the_order_of_ingredients(self, limits: Any) -> None:
        recipes = np.array(RecipeSearch(np.eye(8), 4, **limits).initial(1000, 0))
        has, high = recipes > 0, limits.get("bounds", {0: (0, 1.0)})[0][1]
        size = 4 if limits else np.repeat([1, 2, 3, 4], [8, 28, 56, 70]).mean()
        error = 4 * np.sqrt(0.25 / 1000)
        np.testing.assert_allclose(has.mean(0), size / 8, atol=error)
        full = recipes[has.sum(1) == 4]
        at_bounds = (full[full > 0] < 1e-9) | (full[full > 0] > high - 1e-9)
        assert at_bounds.mean() < 0.01
        if not limits:  # uniform in the simplex: Dirichlet(1, 1, 1, 1)
            assert abs(full[full > 0].var() - 3 / 80) < 0.005

    def test_costs_are_matched_by_name(self) -> None:
        costs = pd.Series(COSTS, index=NAMES)
        expected = RecipeSearch(TABLE, 3, costs=costs, budget=3.0).costs
        assert torch.equal(RecipeSearch(TABLE, 3, costs=costs[::-1], budget=3.0).costs, expected)
        with pytest.raises(ValueError, match="a finite cost of each of 6"):
            RecipeSearch(TABLE, 3, costs=costs[1:], budget=3.0)

    def test_smallest_fractions_of_some_ingredients(self) -> None:
        search = RecipeSearch(np.eye(4), 4, min_fraction={0: 0.1}, bounds={0: (0.0, 0.15)})
        fractions = np.array(search.initial(200, 0))[:, 0]
        assert ((fractions == 0) | (fractions >= 0.1)).all()
        assert 0.1 < np.median(fractions[fractions > 0]) < 0.15

    def test_proposals_in_batches_are_feasible_and_differ(self) -> None:
        search = RecipeSearch(TABLE, 3, raw_samples=32, num_restarts=2, **TIGHT)
        optimizer = optimizer_of(search)
        for _ in range(2):
            asked = optimizer.ask(3)
            keys = [tuple(search.plain(recipe)) for recipe in asked]
            assert len(set(keys)) == 3
            for recipe in asked:
                assert violation(search, search.plain(recipe)) < 1e-9
                optimizer.tell(recipe, outcome(recipe))

    @pytest.mark.parametrize(
        ("options", "error", "match"),
        [
            ({"bounds": {"pepper": (0, 1)}}, ValueError, r"\(0, 1\) of 'pepper'; ingredients"),
            ({"bounds": {"salt": (0.5, 0.2)}}, ValueError, r"got \(0.5, 0.2\) of 'salt'"),
            ({"costs": COSTS}, TypeError, "costs and budget together"),
            ({"costs": COSTS, "budget": 0.5}, ValueError, "budget >= 1, the cost .*'water': 1.0"),
            ({"bounds": dict.fromkeys(NAMES, (0.1, 1))}, ValueError, "none with at most 3 ingr"),
        ],
    )
    def test_impossible_limits_are_errors(self, options: Any, error: Any, match: str) -> None:
        with pytest.raises(error, match=match):
            RecipeSearch(TABLE, **{"max_ingredients": 3} | options)


class TestOptimum:
    @pytest.mark.parametrize("limits", [{}, TIGHT])
    def test_acquisition_is_maximised_over_all_recipes(self, limits: dict[str, Any]) -> None:
        search = RecipeSearch(TABLE, 2, num_restarts=4, **limits)
        recipes = search.initial(20, 3)
        values = [outcome(search.show(recipe)) for recipe in recipes]
        model = small_model(search)(search.inputs(recipes), torch.tensor(values).double()[:, None])
        acquisition = PosteriorMean(model.eval())
        (found,) = search.optimize(acquisition, 1, recipes, recipes, 0)
        grid = []
        for first, second in itertools.permutations(range(6), 2):
            for share in np.linspace(0.5, 1.0, 101):
                recipe = np.zeros(6)
                recipe[[first, second]] = share, 1 - share
                grid.append(recipe.tolist())
        feasible = [recipe for recipe in grid if violation(search, recipe) < 1e-9]
        assert len(feasible) > 20
        with torch.no_grad():
            on_grid = acquisition(search.inputs(feasible).unsqueeze(-2))
            value = acquisition(search.inputs([found]).unsqueeze(-2))
        assert violation(search, found) < 1e-9
        assert value >= on_grid.max() - 1e-9

    def test_no_recipe_is_proposed_twice(self) -> None:
        optimizer = optimizer_of(RecipeSearch(TABLE, 1, num_restarts=1, raw_samples=16))
        for name in NAMES:
            optimizer.tell({name: 1.0}, outcome({name: 1.0}))
        with pytest.raises(ValueError, match="got 6 candidates that are taken"):
            optimizer.ask()


class TestCandidates:
    def test_recipes_are_dictionaries_of_their_ingredients(self) -> None:
        search = RecipeSearch(TABLE, 3)
        optimizer = optimizer_of(search)
        (recipe,) = optimizer.ask()
        assert set(recipe) <= set(NAMES)
        assert all(fraction > 0 for fraction in recipe.values())
        optimizer.tell(recipe, 1.0)
        four = {"water": 0.4, "salt": 0.3, "oil": 0.2, "acid": 0.1}  # more than the search proposes
        optimizer.tell(four, 2.0)
        assert optimizer.best == (four, 2.0)
        optimizer.tell([0.5, 0.5, 0, 0, 0, 0], 0.0)
        clouds = search.input_transform.clouds(search.inputs([search.plain(four)]))
        frame = pd.DataFrame([four])
        assert torch.equal(clouds.weights, PointClouds.from_fractions(frame, TABLE).weights)
        assert torch.equal(clouds.points, PointClouds.from_fractions(frame, TABLE).points)

    @pytest.mark.parametrize(
        ("recipe", "match"),
        [
            ({"water": 0.5, "pepper": 0.5}, r"got \['pepper'\]"),
            ({"water": 1.5, "salt": -0.5}, "got -0.5 of 'salt'"),
        ],
    )
    def test_other_candidates_are_refused(self, recipe: Any, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            optimizer_of(RecipeSearch(TABLE, 3)).tell(recipe, 1.0)

    def test_files_are_of_one_search(self, tmp_path: Path) -> None:
        path = tmp_path / "search.jsonl"
        whole = optimizer_of(RecipeSearch(TABLE, 3), path=path).run(outcome, 4, progress=False)
        again = optimizer_of(RecipeSearch(TABLE, 3), path=path)
        assert again.evaluations == whole.evaluations
        with pytest.raises(ValueError, match="another search"):
            optimizer_of(RecipeSearch(TABLE, 2), path=path)

    def test_recipes_are_parts_of_a_mixed_search(self) -> None:
        search = MixedSearch(
            recipe=RecipeSearch(TABLE, 3, num_restarts=1, raw_samples=16, **TIGHT),
            temperature=(0.0, 1.0),
        )
        recipe = search.parts["recipe"]

        def measured(candidate: dict[str, Any]) -> float:
            return outcome(candidate["recipe"]) - (candidate["temperature"] - 0.3) ** 2

        optimizer = ShapeOptimizer(search, initial=5, restarts=0, seed=2)
        beyond = {"recipe": dict.fromkeys(NAMES[:5], 0.2), "temperature": 0.3}
        optimizer.tell(beyond, measured(beyond))  # it has more ingredients than the search proposes
        optimizer.run(measured, 9, progress=False)
        values = [evaluation.outcomes[0] for evaluation in optimizer.evaluations[1:]]
        assert max(values) > -0.05
        for evaluation in optimizer.evaluations[1:]:
            assert violation(recipe, evaluation.candidate["recipe"]) < 1e-9
