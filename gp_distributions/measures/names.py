"""Names of objects in two tables: labels of clouds, and the index of pandas frames and series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from gp_distributions.measures.arrays import is_missing


class Naming(IntEnum):
    """How certain it is that values name objects, and do not count them.

    A part of a table, such as a fold of a cross-validation, keeps the certainty of the whole.
    """

    COUNTED = 0  # integers that may be the numbers of rows, which a filter or a fold leaves
    NUMBERED = 1  # integers with a name, such as the numbers of patients
    NAMED = 2


@dataclass(frozen=True, eq=False)
class Names:
    """Names of the rows of a table, or of distributions, and how certain it is that they are names.

    Attributes:
        values: The names, an array of shape ``N``.
        naming: How certain it is that they name the rows.
    """

    values: npt.NDArray[Any]
    naming: Naming = Naming.NAMED

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """The names, or None if they count the rows from zero."""
        counts = self.naming == Naming.COUNTED and np.array_equal(
            self.values, np.arange(len(self.values))
        )
        return None if counts else self.values

    def listed(self) -> list[Any]:
        """Return the names as Python values, which compare as equal whatever table they are from."""
        values = self.values
        if values.dtype == object:
            return [_plain(value) for value in values]
        return _microseconds(values).tolist()

    def __getitem__(self, key: Any) -> Names:
        return Names(self.values[key], self.naming)

    @classmethod
    def concatenate(cls, parts: Sequence[Names | None]) -> Names | None:
        """Concatenate names, or return None if some are unknown."""
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return cls(np.concatenate([part.values for part in known]), min(p.naming for p in known))


def _microseconds(values: Any) -> Any:
    """Return dates and durations of NumPy in the unit of Python's; NumPy lists others as integers."""
    kind = values.dtype.kind
    return values.astype(f"{kind}8[us]") if kind in "mM" else values


def _plain(value: Any) -> Any:
    """Return a date or duration in an array of objects as pandas compares it: a day is its midnight."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _microseconds(value).item()
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def index_names(data: Any) -> Names | None:
    """Return the names in the index of a pandas frame or series, or None for anything else."""
    index = getattr(data, "index", None)
    if index is None or callable(index):  # lists and tuples have a method of this name
        return None
    return Names(np.array(index), naming_of(index))


def naming_of(values: Any) -> Naming:
    """Return how certain it is that an index, or an array from one, names rows."""
    if getattr(getattr(values, "dtype", None), "kind", "O") not in "iu":
        return Naming.NAMED
    return Naming.COUNTED if getattr(values, "name", None) is None else Naming.NUMBERED


def check_names(
    first: Names, second: Names, where: str, elsewhere: str, *, table: str = "frame"
) -> None:
    """Check that names are those of the same objects in the same order.

    Integers that may count rows are only compared with the same integers in another order; numbers that
    name rows may differ throughout from other names.

    Args:
        first: Names of the objects, such as the labels of clouds.
        second: Names of the same objects in another table.
        where: What has the first names, for error messages.
        elsewhere: What has the second.
        table: Variable of what has the second, for advice.

    Raises:
        ValueError: If the orders or the names differ, or a name is missing.
    """
    names, others = first.listed(), second.listed()
    naming = min(first.naming, second.naming)
    if names == others:
        return
    counts, found = Counter(names), Counter(others)
    if counts == found:
        row = next(i for i, name in enumerate(names) if name != others[i])
        how = "sort_index()" if first.labels is None else "loc[clouds.labels]"
        # Names that occur twice would be repeated.
        example = f", for example with {table}.{how}" if len(counts) == len(names) else ""
        raise ValueError(
            f"Expected {elsewhere} in the order of {where}, but row {row} is named {names[row]!r} in "
            f"{where} and {others[row]!r} in {elsewhere}. Reorder one of them{example}."
        )
    if naming == Naming.COUNTED:
        return
    _check_present(names, where)
    _check_present(others, elsewhere)
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


def _check_present(names: list[Any], where: str) -> None:
    row = next((row for row, name in enumerate(names) if is_missing(name)), None)
    if row is not None:
        raise ValueError(
            f"Expected a name for each row of {where}, but that of row {row} (counted from 0) is "
            f"missing, {names[row]!r}. Fill in the name, or drop the row."
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
