"""Data frames of pandas, Polars, PyArrow and all other libraries that narwhals reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import narwhals as nw

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
            raise ValueError(f"Expected one column {name!r}, got none; columns: {names}.")
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
