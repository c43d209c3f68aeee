"""Names of objects in two tables: labels of clouds, and the index of pandas frames and series."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any


class Naming(IntEnum):
    """How certain it is that values name objects, and do not count them.

    A part of a table, such as a fold of a cross-validation, keeps the certainty of the whole.
    """

    COUNTED = 0  # integers that may be the numbers of rows, which a filter or a fold leaves
    NUMBERED = 1  # integers with a name, such as the numbers of patients
    NAMED = 2


def index_naming(index: Any) -> Naming:
    """Return how certain it is that the index of a pandas frame or series names the rows."""
    if getattr(getattr(index, "dtype", None), "kind", "O") not in "iu":
        return Naming.NAMED
    return Naming.COUNTED if getattr(index, "name", None) is None else Naming.NUMBERED


def are_integers(names: list[Any]) -> bool:
    """Return whether all names are integers."""
    return all(isinstance(name, int) for name in names)


def row_index(data: Any) -> Any | None:
    """Return the index of a pandas frame or series, or None for anything else."""
    index = getattr(data, "index", None)
    return None if callable(index) else index  # lists and tuples have a method of this name


def check_names(
    names: list[Any],
    others: list[Any],
    where: str,
    elsewhere: str,
    *,
    table: str = "frame",
    naming: Naming = Naming.NAMED,
) -> None:
    """Check that two lists name the same objects in the same order.

    Args:
        names: Names of the objects, such as the labels of clouds.
        others: Names of the same objects in another table.
        where: What has the ``names``, for error messages.
        elsewhere: What has the others.
        table: Variable of what has the others, for advice.
        naming: The lower certainty of both lists. Integers that may count rows are only compared with
            the same integers in another order; numbers that name rows may differ throughout from
            other names.

    Raises:
        ValueError: If the orders or the names differ.
    """
    if names == others:
        return
    counts, found = Counter(names), Counter(others)
    if counts == found:
        row = next(i for i, name in enumerate(names) if name != others[i])
        raise ValueError(
            f"Expected {elsewhere} in the order of {where}, but row {row} is named {names[row]!r} in "
            f"{where} and {others[row]!r} in {elsewhere}. Reorder one of them, for example with "
            f"{table}.loc[clouds.labels]."
        )
    if naming == Naming.COUNTED:
        return
    expected = f"Expected the same names in {where} and {elsewhere}, but"
    if not set(names) & set(others):
        _check_unrelated(names, others, expected, where, elsewhere, table, naming=naming)
        return
    lacking = next(iter([*(counts - found), *(found - counts)]))
    if lacking in counts and lacking in found:
        raise ValueError(
            f"{expected} {lacking!r} occurs {counts[lacking]} times in {where} and "
            f"{found[lacking]} times in {elsewhere}. Keep one entry for each name."
        )
    remedy = (
        f"clouds[numpy.isin(clouds.labels, {table}.index)]"
        if lacking in counts
        else f"{table}.loc[clouds.labels]"
    )
    raise ValueError(
        f"{expected} {lacking!r} is missing from {elsewhere if lacking in counts else where}. Select "
        f"what both have, {remedy}, or drop the names: {table}.reset_index(drop=True)."
    )


def _check_unrelated(
    names: list[Any],
    others: list[Any],
    expected: str,
    where: str,
    elsewhere: str,
    table: str,
    *,
    naming: Naming,
) -> None:
    """Check names without a common one: they may differ in type only, or not be names."""
    texts = {str(other): other for other in others}
    same = next((name for name in names if str(name) in texts), None)
    if same is not None:
        other = texts[str(same)]
        raise ValueError(
            f"{expected} {same!r} of {where} is of type {type(same).__name__} and {other!r} of "
            f"{elsewhere} of type {type(other).__name__}. Convert both columns to one type when they "
            'are read, for example pandas.read_csv(path, dtype={"patient": str}).'
        )
    if naming == Naming.NAMED and len(names) == len(others) > 0:
        raise ValueError(
            f"{expected} they have none in common: the first is {names[0]!r} in {where} and "
            f"{others[0]!r} in {elsewhere}. Rename one of them, or drop the names if the order is the "
            f"same: {table}.reset_index(drop=True)."
        )
