"""Names of objects in two tables: labels of clouds, and the index of pandas frames and series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Names:
    """Names of the rows of a table, or of distributions.

    Attributes:
        values: The names.
        counted: Whether they are integers of an index without a name, which may count rows.
    """

    values: npt.NDArray[Any]
    counted: bool = False

    @property
    def labels(self) -> npt.NDArray[Any] | None:
        """The names, or None if they may count rows."""
        return None if self.counted else self.values

    def listed(self) -> list[Any]:
        """Return the names as Python values, which compare as equal whatever table they are from."""
        return list(map(_plain, self.values))

    def __getitem__(self, key: Any) -> Names:
        return Names(self.values[key], self.counted)

    @classmethod
    def concatenate(cls, parts: Sequence[Names | None]) -> Names | None:
        """Concatenate names, or return None if some are unknown."""
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        values = np.concatenate([part.values for part in known])
        return cls(values, any(part.counted for part in known))


def _plain(value: Any) -> Any:
    """Return a name as pandas compares it: dates in any unit are equal, and a day is its midnight."""
    if isinstance(value, np.generic):
        kind = value.dtype.kind
        return (value.astype(f"{kind}8[us]") if kind in "mM" else value).item()
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def index_names(data: Any) -> Names | None:
    """Return the names in the index of a pandas frame or series, or None for anything else."""
    index = getattr(data, "index", None)
    if index is None or callable(index):
        return None
    counted = getattr(index.dtype, "kind", "O") in "iu" and index.name is None
    return Names(np.array(index), counted)


def check_names(
    first: Names, second: Names, where: str, elsewhere: str, *, table: str = "frame"
) -> None:
    """Check that names are those of the same objects in the same order.

    Integers that may count rows are compared with the same integers only.

    Args:
        first: The names in one table.
        second: The names in the other.
        where: What the first table is called.
        elsewhere: What the other is called.
        table: A Python name of the pandas object, for an example.

    Raises:
        ValueError: If they are the same names in another order, or other names.
    """
    names, others = first.listed(), second.listed()
    if names == others:
        return
    counts, found = Counter(names), Counter(others)
    if counts == found:
        row = next(i for i, name in enumerate(names) if name != others[i])
        raise ValueError(
            f"Expected {elsewhere} in the order of {where}, but row {row} is named {names[row]!r} in "
            f"{where} and {others[row]!r} in {elsewhere}. Put them in one order, for example "
            f"with {table}.loc[clouds.labels], or with sort_index() if they count rows."
        )
    if first.counted or second.counted:
        return
    name = next(iter([*counts - found, *found - counts]))
    raise ValueError(
        f"Expected the same names in {where} and {elsewhere}, but {name!r} occurs {counts[name]} times "
        f"in {where} and {found[name]} times in {elsewhere}; they begin with {names[:3]} and "
        f"{others[:3]}. Select what both have, {table}.loc[clouds.labels] or "
        f"clouds[numpy.isin(clouds.labels, {table}.index)]; read names of different types as one type; "
        f"or drop the names if the rows are in one order, {table}.reset_index(drop=True)."
    )
