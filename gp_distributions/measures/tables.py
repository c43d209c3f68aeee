"""Data frames from pandas, Polars, PyArrow and other libraries that narwhals supports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Column(Protocol):
    """A column of a data frame."""

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the values as an array."""


class Frame(Protocol):
    """The interface required of a data frame: ``frame.columns`` and ``frame[name].to_numpy()``.

    PyArrow tables have ``frame.column_names`` instead of ``frame.columns``. Narwhals collects lazy
    frames. Error messages name rows by ``frame.index``, if it exists.
    """

    @property
    def columns(self) -> Iterable[Any]:
        """Names of the columns."""

    def __getitem__(self, name: str, /) -> Column: ...


def is_table(data: Any) -> bool:
    """Return whether an object has named columns, as data frames do, in memory or not."""
    return _is_arrow(data) or (hasattr(data, "columns") and getattr(data, "ndim", 2) == 2)


def opened(frame: Any, needed: Sequence[str]) -> Frame:
    """Return a data frame whose columns are in memory; collect the needed columns of a lazy frame.

    Raises:
        TypeError: If the object is not a data frame.
        ValueError: If a lazy frame lacks a column.
    """
    advice = ""
    try:
        import narwhals
    except ImportError:
        advice = " Collect lazy frames, and install narwhals to read frames of other libraries."
    else:
        frame = narwhals.to_native(frame, pass_through=True)
        # Narwhals may reject a pandas frame because of columns that are not needed here.
        pandas = narwhals.dependencies.is_pandas_dataframe(frame)
        read = None if pandas else narwhals.from_native(frame, pass_through=True)
        if isinstance(read, narwhals.LazyFrame):
            existing = read.collect_schema().names()
            for name in needed:
                check_name(name, existing)
            return read.select(dict.fromkeys(needed)).collect().to_native()
    if isinstance(frame, str | PathLike):
        advice = f" Read the file first, for example with pandas.read_csv({str(frame)!r})."
    lazy = hasattr(type(frame), "collect")
    if lazy or not (
        hasattr(frame, "__getitem__") and (_is_arrow(frame) or hasattr(frame, "columns"))
    ):
        raise TypeError(
            "Expected a data frame, such as one of pandas, Polars or PyArrow, got "
            f"{type(frame).__name__}.{advice}"
        )
    return frame


def column(frame: Any, name: str) -> npt.NDArray[Any]:
    """Return the values of a column.

    Raises:
        ValueError: If there is no such column, or more than one, or it holds structs.
        TypeError: If the column cannot be read as an array.
    """
    check_name(name, column_names(frame))
    values = frame[name]
    if type(getattr(values, "dtype", None)).__name__ == "Struct":
        raise ValueError(
            f"Column {name!r}: expected one value in each row, got a struct of several. Make a column "
            f"of each with frame.unnest({name!r})."
        )
    if _is_arrow(frame):
        return np.asarray(values)  # its to_numpy refuses to copy by default
    if not hasattr(values, "to_numpy"):
        raise TypeError(
            f"Column {name!r}: expected a column with a method to_numpy, got "
            f"{type(values).__name__} from {type(frame).__name__}. Collect the frame first, or "
            "convert it to pandas."
        )
    return values.to_numpy()


def column_names(frame: Any) -> list[Any]:
    """Return the names of the columns of an opened frame."""
    return list(frame.column_names if _is_arrow(frame) else frame.columns)


def index_of(frame: Any) -> npt.NDArray[Any] | None:
    """Return the index of a pandas frame, by which messages name rows, or None."""
    index = getattr(frame, "index", None)
    return None if index is None else np.asarray(index)


def check_name(name: str, existing: list[Any]) -> None:
    """Check that exactly one column has a name.

    Raises:
        ValueError: If not.
    """
    if existing.count(name) != 1:
        problem = "more than one" if name in existing else "none"
        raise ValueError(f"Expected one column {name!r}, got {problem}; columns: {existing}.")


def check_texts(names: Iterable[Any], where: str = "") -> None:
    """Check that names of columns differ as text, as which blocks and columns are named.

    Raises:
        ValueError: If not.
    """
    found: set[str] = set()
    for name in names:
        if str(name) in found:
            raise ValueError(
                f"Column {name!r}{where}: expected columns whose names differ as text, got another "
                f"column {str(name)!r}. Rename one of them."
            )
        found.add(str(name))


def _is_arrow(frame: Any) -> bool:
    # The class is tested, because a pandas frame has an attribute for each of its columns.
    return hasattr(type(frame), "column_names")
