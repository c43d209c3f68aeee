"""Data frames of pandas, Polars, PyArrow and all other libraries that narwhals reads."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt

Table: TypeAlias = "nw.DataFrame[Any]"


def is_table(data: Any) -> bool:
    """Return whether an object is a data frame, in memory or not."""
    read = nw.from_native(data, pass_through=True)
    return isinstance(read, nw.DataFrame | nw.LazyFrame) or _is_batch(read)


def table(frame: Any, needed: Sequence[str] | None = None) -> Table:
    """Read a data frame; collect the needed columns of a lazy one.

    Args:
        frame: A frame of pandas, Polars or PyArrow, or of another library that narwhals reads.
        needed: Names of columns that must exist. Default: all columns.

    Raises:
        TypeError: If the object is not a data frame.
        ValueError: If a column does not exist, or two have the same name.
    """
    read: Any = nw.from_native(frame, pass_through=True)
    if _is_batch(read):
        read = nw.from_arrow(read, backend="pyarrow")
    if not isinstance(read, nw.DataFrame | nw.LazyFrame):
        advice = ""
        if isinstance(frame, str | PathLike):
            advice = f" Read the file first, for example with pandas.read_csv({str(frame)!r})."
        raise TypeError(
            "Expected a data frame, such as one of pandas, Polars or PyArrow, got "
            f"{type(frame).__name__}.{advice}"
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
            f"Column {name!r}: expected one value in each row, got a struct of several. Make a column "
            f"of each with frame.unnest({name!r})."
        )
    return values.to_native()


def cells(column: Any) -> list[Any] | None:
    """Return the entries of a column of a data frame, or None for anything else."""
    read: Any = nw.from_native(column, allow_series=True, pass_through=True)
    return read.to_list() if isinstance(read, nw.Series) else None


def row_names(frame: Table) -> npt.NDArray[Any]:
    """Return how messages name the rows of a frame: by its index in pandas, else by numbers."""
    index = nw.maybe_get_index(frame)
    return np.arange(len(frame)) if index is None else np.asarray(index)


def _is_batch(data: Any) -> bool:
    """Return whether data are a record batch of PyArrow, which narwhals reads as a stream only."""
    return hasattr(type(data), "__arrow_c_array__") and hasattr(type(data), "column_names")
