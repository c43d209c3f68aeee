"""Wide tables with a row for each recipe and a column for each ingredient, which has properties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from gp_distributions.measures._bags import pad
from gp_distributions.measures._validation import Clouds, Wording, validated
from gp_distributions.measures.arrays import (
    Labels,
    object_array,
    point_array,
    real_array,
    to_tensors,
)
from gp_distributions.measures.names import index_names
from gp_distributions.measures.tables import cells, column, is_table, table

# Largest difference of a sum of fractions from one.
_ROUNDING = 1e-6


def read_fractions(
    fractions: Any,
    ingredients: Any,
    bag: str | None,
    name: str | None,
    columns: Sequence[str] | None,
) -> tuple[Clouds, Labels | None]:
    """Read recipes, whose atoms are the ingredients of which they have some.

    Returns:
        A ``B x n x d`` tensor of properties, a ``B x n`` tensor of fractions, their sums before, and
        the labels of the recipes.

    Raises:
        TypeError: If ``ingredients`` is a frame of names that are not known.
        ValueError: If an ingredient is unknown or occurs twice, or fractions are invalid.
    """
    names, properties = read_ingredients(ingredients, name, columns)
    labels: Labels | None = None
    if is_table(fractions):
        read = table(table(fractions), [] if bag is None else [bag])
        found = [each for each in read.columns if each != bag]
        if unknown := [each for each in found if each not in names]:
            raise ValueError(
                f"Expected a row of ingredients for each column of fractions, got none for {unknown}; "
                f"ingredients: {names}. Select the columns of fractions, and name that of labels, bag=."
            )
        properties = properties[[names.index(each) for each in found]]
        given = [real_array(column(read, each), f"Column {each!r}") for each in found]
        fractions, names = np.stack(given, axis=-1), found
        if bag is not None:
            labels = object_array(cells(column(read, bag)) or [])
        elif (index := index_names(read.to_native())) is not None:
            labels = index.labels
    matrix = point_array(fractions, "Fractions", "(n, ingredients)")
    values, atoms = to_tensors([matrix, properties])
    check_fractions(values, names, labels)
    recipe, ingredient = values.nonzero(as_tuple=True)
    sizes = (values > 0).sum(-1)
    padded = pad(atoms[ingredient], sizes), pad(values[recipe, ingredient], sizes)
    return validated(*padded, Wording("Recipe", "fractions", labels)), labels


def read_ingredients(
    ingredients: Any, name: str | None, columns: Sequence[str] | None
) -> tuple[list[Any], Any]:
    """Return the names and an ``N x d`` array of the properties of ingredients.

    Args:
        ingredients: A data frame with a row for each ingredient, or an ``N x d`` array.
        name: Name of the column of names. Default: the index of a pandas frame.
        columns: Names of the columns of properties. Default: all others.

    Raises:
        TypeError: If a frame has neither an index nor ``name``.
        ValueError: If an ingredient occurs twice, or a property is not a finite number.
    """
    names: list[Any] | None = None
    chosen: list[Any] = []
    if is_table(ingredients):
        read = table(table(ingredients), [*([] if name is None else [name]), *(columns or ())])
        index = index_names(read.to_native())
        if name is None and index is None:
            raise TypeError(
                "Expected name=, the column of the names of ingredients, for a frame without an index."
            )
        names = index.listed() if name is None and index else cells(column(read, name)) or []
        chosen = [c for c in read.columns if c != name] if columns is None else list(columns)
        given = [real_array(column(read, each), f"Column {each!r}") for each in chosen]
        ingredients = np.stack(given, axis=-1) if given else []
    properties = point_array(ingredients, "Ingredients", "(n, d)")
    names = list(range(len(properties))) if names is None else names
    if repeated := [each for each, times in Counter(names).items() if times > 1]:
        raise ValueError(f"Expected each ingredient once, got {repeated} more than once.")
    (values,) = to_tensors([properties])
    if len(bad := (~values.isfinite()).nonzero()):
        row, place = bad[0].tolist()
        which = repr(chosen[place]) if chosen else place
        raise ValueError(
            f"Ingredient {names[row]!r}: expected finite properties, got {values[row, place].item()} "
            f"in column {which}."
        )
    return names, properties


def check_fractions(values: Tensor, names: Sequence[Any], labels: Labels | None = None) -> None:
    """Check that each row of a ``B x N`` tensor has fractions of ingredients that sum to one.

    Raises:
        ValueError: If not; the message names the recipe and the ingredient.
    """
    wording = Wording("Recipe", labels=labels)
    if values.shape[-1] != len(names):
        raise ValueError(
            f"Expected a fraction for each of {len(names)} ingredients, got {values.shape[-1]}."
        )
    if len(bad := (~(values.isfinite() & (values >= 0))).nonzero()):
        row, place = bad[0].tolist()
        raise ValueError(
            f"{wording((row,))}: expected finite fractions >= 0, got {values[row, place].item()} of "
            f"{names[place]!r}. If gaps stand for none, use frame.fillna(0)."
        )
    sums = values.sum(-1)
    if len(off := ((sums - 1).abs() > _ROUNDING).nonzero()):
        row = int(off[0])
        raise ValueError(
            f"{wording((row,))}: expected fractions that sum to 1, got the sum "
            f"{sums[row].item():.7g}. Divide percentages by 100, and rounded fractions by their sum."
        )
