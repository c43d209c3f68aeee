"""Data frames of all libraries that narwhals reads, their columns, and the names of their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np

from gp_distributions.measures.arrays import Labels, Name, object_array

# The names of coordinates, if they have some.
Columns: TypeAlias = tuple[str, ...] | None
Table: TypeAlias = "nw.DataFrame[Any]"


def is_table(data: Any) -> bool:
    """Return whether an object is a data frame, in memory or not."""
    return isinstance(_from_native(data), nw.DataFrame | nw.LazyFrame)


def table(frame: Any, needed: Sequence[str] | None = None) -> Table:
    """Read a data frame; collect the needed columns of a lazy one.

    Args:
        frame: A frame of pandas, Polars or PyArrow, or of another library that narwhals reads.
        needed: Names of columns that must exist. Default: all columns.

    Raises:
        TypeError: If the object is not a data frame.
        ValueError: If a column does not exist, or two have the same name.
    """
    read = _from_native(frame)
    if not isinstance(read, nw.DataFrame | nw.LazyFrame):
        raise TypeError(
            "Expected a data frame, such as one of pandas, Polars or PyArrow, got "
            f"{type(frame).__name__}. Read files first, for example with pandas.read_csv."
        )
    names = read.collect_schema().names()
    for name in needed or ():
        if name not in names:
            raise ValueError(
                f"Expected one column {name!r}, got none; columns: {names}. The index of a pandas frame "
                "becomes columns by frame.reset_index()."
            )
    if isinstance(read, nw.LazyFrame):
        return (read if needed is None else read.select(dict.fromkeys(needed))).collect()
    return read


def column(frame: Table, name: Any) -> Any:
    """Return a column as its library holds it.

    Raises:
        ValueError: If it holds structs.
    """
    values = frame.get_column(name)
    if values.dtype == nw.Struct:
        raise ValueError(
            f"Column {name!r}: got a struct of several values. Use frame.unnest({name!r})."
        )
    return values.to_native()


def cells(column: Any) -> list[Any] | None:
    """Return the entries of a column of a data frame, or None for anything else."""
    read: Any = nw.from_native(column, allow_series=True, pass_through=True)
    return read.to_list() if isinstance(read, nw.Series) else None


def _from_native(data: Any) -> Any:
    if hasattr(type(data), "__arrow_c_array__") and hasattr(type(data), "column_names"):
        return nw.from_arrow(data, backend="pyarrow")  # a record batch of PyArrow
    return nw.from_native(data, pass_through=True)


def in_one_order(items: Iterable[Any], name: Name) -> tuple[list[Any], Columns]:
    """Return frames and distributions with named columns in the order of the first, and the names.

    Raises:
        ValueError: If one has other columns; the message begins with its name.
    """
    found, columns = [], None
    for i, item in enumerate(items):
        given = table(item) if hasattr(item, "columns") and is_table(item) else item
        found.append(in_order(given, columns, name((i,))))
        columns = columns or _names_of(given)
    return found, columns


def in_order(item: Any, columns: Columns, where: str) -> Any:
    """Return a table or distributions with their columns in a given order, if both have names.

    Raises:
        ValueError: If the columns are others, or clouds with normals have another order.
    """
    names = _names_of(item)
    if columns is None or names is None or names == columns:
        return item
    if sorted(names) != sorted(columns) or getattr(item, "num_normals", False):
        raise ValueError(f"{where}: expected the columns {[*columns]}, got {[*names]}.")
    return item.select(columns) if isinstance(item, nw.DataFrame) else item._select(columns)


def _names_of(item: Any) -> Columns:
    columns = tuple(getattr(item, "columns", None) or ())
    return columns if columns and all(isinstance(each, str) for each in columns) else None


def listed(
    items: Any, noun: str, labels: Iterable[Any] | None = None
) -> tuple[list[Any], Labels | None]:
    """Return items as a list, and their labels.

    Args:
        items: An iterable of items, such as a column of a data frame, or a dictionary.
        noun: What an item is called in error messages.
        labels: Labels of the items. Default: the keys of a dictionary.

    Raises:
        TypeError: If the items cannot be iterated over, are a table, or are the path of one file.
        ValueError: If there is not one label for each item.
    """
    if isinstance(items, Mapping):
        labels, items = items.keys(), items.values()
    listable = isinstance(items, Iterable) or hasattr(items, "__len__")
    if isinstance(items, str) or is_table(items) or not listable:
        raise TypeError(
            f"Expected a list or dictionary with an entry for each {noun}, got "
            f"{type(items).__name__}. Pass a single {noun} in a list, [{noun}], files of a folder as "
            "sorted(Path(folder).glob('*.stl')), and a column of a frame as frame[name]. Read a long "
            "table with PointClouds.from_frame(frame, bag=..., columns=[...])."
        )
    column = cells(items)
    column = list(items) if column is None else column
    if labels is None:
        return column, None
    names = object_array(cells(labels) or list(labels))
    if len(names) != len(column):
        raise ValueError(f"Expected a label for each {noun}, {len(column)}, got {len(names)}.")
    return column, names


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


def joined_labels(parts: Sequence[Any]) -> Labels | None:
    """Return the labels of several objects in turn, if all have labels."""
    labels = [part.labels for part in parts]
    return None if any(each is None for each in labels) else np.concatenate(labels)


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
            "frame.loc[clouds.labels], repeat clouds by clouds[frame.index], or drop the names with "
            "frame.reset_index(drop=True)."
        )


def names_of(X: object) -> Names | None:
    """Return the names of the rows of a pandas frame or series, or of inputs; None for anything else."""
    names = getattr(X, "_names", None)
    return names if isinstance(names, Names) else index_names(X)
