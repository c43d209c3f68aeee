"""Names of objects in two tables: labels of clouds, and the index of pandas frames and series."""

from __future__ import annotations

from collections import Counter
from typing import Any


def index_names(data: Any) -> tuple[list[Any], bool] | None:
    """Return the index of a pandas frame or series as a list, and whether it is known to name rows.

    An index that counts the rows does not name them. Integers without a name may be either: the numbers
    of the rows that a filter kept, or names.

    Returns:
        The names and whether they are known to be names, or None if there is no index.
    """
    index = getattr(data, "index", None)
    if index is None or callable(index):
        return None
    counts = type(index).__name__ == "RangeIndex"
    integers = getattr(getattr(index, "dtype", None), "kind", "O") in "iu"
    return list(index), not counts and (not integers or getattr(index, "name", None) is not None)


def check_names(
    names: list[Any],
    others: list[Any],
    where: str,
    elsewhere: str,
    *,
    table: str = "frame",
    related: bool = True,
) -> None:
    """Check that two lists name the same objects in the same order.

    Args:
        names: Names of the objects, such as the labels of clouds.
        others: Names of the same objects in another table.
        where: What has the ``names``, for error messages.
        elsewhere: What has the others.
        table: Variable of what has the others, for advice.
        related: Whether lists of one length without a common name are an error.

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
    expected = f"Expected the same names in {where} and {elsewhere}, but"
    if not set(names) & set(others):
        _check_unrelated(names, others, expected, where, elsewhere, table, related=related)
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
    related: bool,
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
    if related and len(names) == len(others) > 0:
        raise ValueError(
            f"{expected} they have none in common: the first is {names[0]!r} in {where} and "
            f"{others[0]!r} in {elsewhere}. Rename one of them, or drop the names if the order is the "
            f"same: {table}.reset_index(drop=True)."
        )
