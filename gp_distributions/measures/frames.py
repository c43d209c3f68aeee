"""Long tables with a row for each atom, and wide tables of recipes with a column for each ingredient."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._bags import KindNames, padded, with_listed_kinds
from gp_distributions.measures.arrays import (
    Clouds,
    Labels,
    Wording,
    as_floats,
    is_missing,
    object_array,
    point_array,
    real_array,
    to_tensors,
)
from gp_distributions.measures.tables import Table, cells, column, index_names, is_table, table
from gp_distributions.warnings import MissingWarning, warn


def read_frame(
    frame: Any,
    bag: str,
    names: Sequence[str],
    weight: str | None,
    kind: str | None,
    missing: str | None,
) -> tuple[Clouds, Labels, KindNames]:
    """Group the rows of a frame by bag, keeping their order within each bag.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights and the masses of the
        bags; their names in order of first appearance; and the names of the kinds of atoms.

    Raises:
        TypeError: If ``frame`` is not a data frame.
        ValueError: If a column does not exist or has the wrong content.
    """
    if missing not in (None, "drop"):
        raise ValueError(f'Expected missing to be None or "drop", got {missing!r}.')
    if bag in names:
        raise ValueError(
            f"Expected columns of coordinates, got that of bags, {bag!r}, in {[*names]}."
        )
    if not names:
        raise ValueError("Expected at least one column of coordinates, got none.")
    given = names if weight is None else [*names, weight]
    read = table(frame, [bag, *given, *([] if kind is None else [kind])])
    ids = np.asarray(column(read, bag))
    entries = {name: column(read, name) for name in given}
    if kind is not None:
        entries[kind] = object_array(cells(column(read, kind)) or [])
    if missing:
        kept = _whole(ids, entries.values())
        ids, entries = ids[kept], {name: np.asarray(e)[kept] for name, e in entries.items()}
    values = [torch.from_numpy(_numbers(entries[name], name, ids)) for name in given]
    points = torch.stack(values[: len(names)], -1)
    weights = torch.ones_like(values[0]) if weight is None else values[-1]
    return split_rows_by_bag(points, weights, ids, bag, kinds=entries.get(str(kind)))


def split_rows_by_bag(
    points: Tensor,
    weights: Tensor,
    ids: Labels,
    bag: str,
    *,
    noun: str = "Bag",
    kinds: npt.NDArray[Any] | None = None,
) -> tuple[Clouds, Labels, KindNames]:
    """Group atoms by bag, keeping their order within each bag.

    Args:
        points: An ``N x d`` tensor of atoms.
        weights: ``N`` weights.
        ids: The bag of each atom.
        bag: Name of the column of bags, for error messages.
        noun: What a bag is called in error messages.
        kinds: The kinds of the atoms, or None.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the masses of the
        bags; their names in order of first appearance; and the names of the kinds of atoms.

    Raises:
        ValueError: If the bag of an atom is missing or unhashable, or atoms or weights are invalid.
    """
    if not len(ids):
        raise ValueError("Expected at least one row, got none.")
    keys = ids.tolist()
    codes = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    code = np.fromiter(map(codes.__getitem__, keys), dtype=np.intp, count=len(keys))
    for key in filter(is_missing, codes):
        raise ValueError(
            f"Column {bag!r}: expected a bag for each row, got a missing value in row "
            f"{np.argmax(code == codes[key])} (counted from 0)."
        )
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    firsts = np.cumsum(counts) - counts
    labels, sizes = ids[order[firsts]], torch.from_numpy(counts)
    of_bags = None if kinds is None else np.split(kinds[order], firsts[1:])
    wording = Wording(noun, labels=labels)
    found = padded(points[order], weights[order], sizes, wording)
    clouds, names = with_listed_kinds(found, of_bags, wording, counts.tolist())
    return clouds, labels, names


def _whole(ids: Labels, entries: Iterable[Any]) -> npt.NDArray[np.bool_]:
    """Return which atoms lack no value, and warn of the others."""
    each = [[is_missing(v) for v in np.asarray(e, dtype=object)] for e in entries]
    gaps: npt.NDArray[np.bool_] = np.logical_or.reduce(each)
    if gaps.any():
        left = set(ids[~gaps].tolist())
        empty = [each for each in dict.fromkeys(ids.tolist()) if each not in left]
        named = f" No atom is left of the bags {reprlib.repr(empty)}, which are left out."
        warn(
            f"{gaps.sum()} of {len(ids)} atoms lack a value and are left out.{named if empty else ''}",
            MissingWarning,
        )
    return ~gaps


def _numbers(values: Any, name: str, ids: Labels) -> npt.NDArray[np.float64]:
    """Return a column of finite numbers; the error names the row and the bag."""
    numbers = as_floats(np.asarray(values))
    plain = numbers.dtype.kind in "biuf"
    good = np.isfinite(numbers) if plain else [isinstance(v, int | float) for v in numbers]
    if plain and np.all(good):
        return np.array(numbers, dtype=np.float64)
    row = int(np.argmin(good))
    raise ValueError(
        f"Column {name!r}: expected finite numbers, got {reprlib.repr(numbers.tolist()[row])} "
        f"in row {row} (counted from 0), of bag {ids.tolist()[row]!r}. Convert text to numbers, and "
        f"times to days by (frame[{name!r}] - frame[{name!r}].min()) / pandas.Timedelta('1D'); give "
        f"each category a column, as pandas.get_dummies(frame, columns=[{name!r}], dtype=float) does; "
        "fill in a missing value, or drop the row."
    )


# Largest difference of a sum of fractions from one.
_ROUNDING = 1e-6


def read_fractions(
    fractions: Any,
    ingredients: Any,
    bag: str | None,
    name: str | None,
    columns: Sequence[str] | None,
) -> tuple[Clouds, Labels | None, tuple[Any, ...] | None]:
    """Read recipes, whose atoms are the ingredients of which they have some.

    Returns:
        A ``B x n x d`` tensor of properties, a ``B x n`` tensor of fractions and their sums before; the
        labels of the recipes; and the names of properties.

    Raises:
        TypeError: If ``ingredients`` is a frame of names that are not known.
        ValueError: If an ingredient is unknown or occurs twice, or fractions are invalid.
    """
    names, properties, chosen = read_ingredients(ingredients, name, columns)
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
        fractions, names = _matrix(read, found), found
        if bag is not None:
            labels = object_array(cells(column(read, bag)) or [])
        elif (index := index_names(read.to_native())) is not None:
            labels = index.labels
    matrix = point_array(fractions, "Fractions", "(n, ingredients)")
    values, atoms = to_tensors([matrix, properties])
    check_fractions(values, names, labels)
    recipe, ingredient = values.nonzero(as_tuple=True)
    sizes = (values > 0).sum(-1)
    wording = Wording("Recipe", "fractions", labels)
    clouds = padded(atoms[ingredient], values[recipe, ingredient], sizes, wording)
    return clouds, labels, tuple(chosen) or None


def read_ingredients(
    ingredients: Any, name: str | None, columns: Sequence[str] | None
) -> tuple[list[Any], Any, list[Any]]:
    """Return the names of ingredients, an ``N x d`` array of their properties, and the names of these.

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
        try:
            ingredients = _matrix(read, chosen)
        except ValueError as error:
            raise ValueError(f"{error} If it names the ingredients, pass name=.") from None
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
    return names, properties, chosen


def _matrix(frame: Table, columns: Sequence[Any]) -> Any:
    """Return columns of numbers as an ``N x columns`` array."""
    given = [real_array(column(frame, each), f"Column {each!r}") for each in columns]
    return np.stack(given, axis=-1) if given else []


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
