"""Names of objects in two tables: labels of clouds, and the index of pandas frames and series."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from gp_distributions.measures.arrays import Labels


@dataclass(frozen=True, eq=False)
class Names:
    """Names of the rows of a table, or of distributions.

    Attributes:
        values: The names.
        counted: Whether they are integers of an index without a name, which may count rows.
    """

    values: Labels
    counted: bool = False

    @property
    def labels(self) -> Labels | None:
        """The names, or None if they may count rows."""
        return None if self.counted else self.values

    def listed(self) -> list[Any]:
        """The names as Python values; dates are equal whatever table they are from."""
        dates = self.values.dtype.kind == "M"
        return (self.values.astype("M8[us]") if dates else self.values).tolist()

    def __getitem__(self, key: Any) -> Names:
        return Names(self.values[key], self.counted)


def index_names(data: Any) -> Names | None:
    """Return the names in the index of a pandas frame or series, or None for anything else."""
    index = getattr(data, "index", None)
    if index is None or callable(index):
        return None
    counted = getattr(index.dtype, "kind", "O") in "iu" and index.name is None
    return Names(np.array(index), counted)


def check_names(first: Names, second: Names, where: str, elsewhere: str) -> None:
    """Check that names are those of the same objects in the same order.

    Integers that may count rows are compared with the same integers only.

    Args:
        first: The names in one table.
        second: The names in the other.
        where: What the first table is called.
        elsewhere: What the other is called.

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
            "with frame.loc[clouds.labels]."
        )
    if not (first.counted or second.counted):
        name = next(iter([*counts - found, *found - counts]))
        raise ValueError(
            f"Expected the same names in {where} and {elsewhere}, but {name!r} occurs {counts[name]} "
            f"times in {where} and {found[name]} times in {elsewhere}. Select what both have with "
            "frame.loc[clouds.labels], or drop the names with frame.reset_index(drop=True)."
        )
