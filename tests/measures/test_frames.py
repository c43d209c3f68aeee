"""Recipes in a wide table of fractions, beside a table of ingredients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gp_distributions import PointClouds

INGREDIENTS = pd.DataFrame(
    {"fat": [81.0, 0.0, 1.0], "sugar": [0.0, 100.0, 1.0]}, index=["butter", "sugar", "flour"]
)
RECIPES = pd.DataFrame(
    {"flour": [0.5, 1.0], "butter": [0.3, 0.0], "sugar": [0.2, 0.0]}, index=["short", "dust"]
)


def same(first: PointClouds, second: PointClouds) -> bool:
    tensors = zip((first.points, first.weights), (second.points, second.weights), strict=True)
    return all(torch.equal(*pair) for pair in tensors)


def test_atoms_are_the_ingredients_that_a_recipe_has() -> None:
    clouds = PointClouds.from_fractions(RECIPES, INGREDIENTS)
    bags = [[[1.0, 1.0], [81.0, 0.0], [0.0, 100.0]], [[1.0, 1.0]]]
    assert same(clouds, PointClouds.from_list(bags, weights=[[0.5, 0.3, 0.2], [1.0]]))
    assert clouds.labels is not None
    assert clouds.labels.tolist() == ["short", "dust"]
    means = (clouds.weights.unsqueeze(-1) * clouds.points).sum(-2)
    expected = RECIPES @ INGREDIENTS.loc[RECIPES.columns]
    np.testing.assert_allclose(means.numpy(), expected.to_numpy())


def test_arrays_have_the_ingredients_in_their_order() -> None:
    ordered = RECIPES[INGREDIENTS.index]
    known = PointClouds.from_fractions(ordered, INGREDIENTS)
    fractions, properties = (
        torch.tensor(frame.to_numpy().tolist(), dtype=torch.float64, requires_grad=True)
        for frame in (ordered, INGREDIENTS)
    )
    for given in (INGREDIENTS, INGREDIENTS.to_numpy(), properties):
        assert same(PointClouds.from_fractions(fractions, given), known)
    clouds = PointClouds.from_fractions(fractions, properties)
    assert clouds.labels is None
    (clouds.weights.square().sum() + clouds.points.sum()).backward()
    assert fractions.grad is not None
    assert properties.grad is not None
    assert properties.grad[:, 0].tolist() == [1.0, 1.0, 2.0]  # recipes with butter, sugar, flour


def test_names_are_in_columns_too() -> None:
    known = PointClouds.from_fractions(RECIPES, INGREDIENTS[["fat"]])
    found = PointClouds.from_fractions(
        RECIPES.reset_index(names="recipe"),
        INGREDIENTS.reset_index(names="ingredient").assign(supplier="text"),
        bag="recipe",
        name="ingredient",
        columns=["fat"],
    )
    assert same(found, known)
    assert found.labels is not None
    assert found.labels.tolist() == ["short", "dust"]
    assert PointClouds.from_fractions(RECIPES.reset_index(drop=True), INGREDIENTS).labels is None


def at(value: float) -> pd.DataFrame:
    changed = RECIPES.copy()
    changed.loc["dust", "butter"] = value
    return changed


@pytest.mark.parametrize(
    ("fractions", "ingredients", "match"),
    [
        (at(0.01), INGREDIENTS, r"Recipe 1 \(label dust\).* sum to 1, got the sum 1.01"),
        (at(np.nan), INGREDIENTS, r"Recipe 1 \(label dust\).* got nan of 'butter'.*fillna"),
        (100 * RECIPES, INGREDIENTS, r"got the sum 100\. Divide percentages by 100"),
        (
            RECIPES.assign(salt=0.0, y=1),
            INGREDIENTS,
            r"got none for \['salt', 'y'\]; ingredients: ",
        ),
        (RECIPES, pd.concat([INGREDIENTS, INGREDIENTS[:1]]), r"once, got \['butter'\] more than"),
        (RECIPES.to_numpy()[:, 1:], INGREDIENTS, "a fraction for each of 3 ingredients, got 2"),
        (RECIPES.astype(str), INGREDIENTS, r"Column 'flour': expected real numbers, got '0.5' at"),
        (RECIPES, INGREDIENTS.assign(pH=[7, np.nan, 7]), "'sugar': .* got nan in column 'pH'"),
    ],
)
def test_errors_say_what_and_where(fractions: Any, ingredients: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        PointClouds.from_fractions(fractions, ingredients)


def test_frames_without_an_index_name_their_ingredients() -> None:
    pa = pytest.importorskip("pyarrow")
    ingredients = pa.Table.from_pandas(INGREDIENTS.reset_index(names="ingredient"))
    recipes = pa.Table.from_pandas(RECIPES.reset_index(names="recipe"))
    with pytest.raises(TypeError, match="Expected name="):
        PointClouds.from_fractions(recipes, ingredients, bag="recipe")
    clouds = PointClouds.from_fractions(recipes, ingredients, bag="recipe", name="ingredient")
    assert same(clouds, PointClouds.from_fractions(RECIPES, INGREDIENTS))


def test_columns_that_do_not_exist_are_named() -> None:
    with pytest.raises(ValueError, match="Expected one column 'recipe', got none"):
        PointClouds.from_fractions(RECIPES, INGREDIENTS, bag="recipe")
