"""Columns of numbers and categories beside distributions: ages, doses, treatments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import (
    as_floats,
    count_axes,
    is_missing,
    is_number,
    object_array,
    real_array,
    to_tensor,
)
from gp_distributions.measures.names import Names, index_names
from gp_distributions.measures.tables import column, is_table, table
from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.rows.clouds import same_tensor

# A category: what files can hold and what compares as equal after reading it again.
Level: TypeAlias = str | bool | int | float
_LEVELS = (str, bool, int, float)
# Kinds of NumPy arrays that hold numbers, and those that hold text, booleans or objects.
_NUMBERS, _OBJECTS = "iuf", "OUSTb"
# Up to this many levels, text is taken for categories without question.
_FEW = 10


@dataclass(frozen=True, eq=False, repr=False)
class Covariates:
    """Named columns of numbers and of categories, with one entry for each bag.

    :class:`MixedInputs` makes them from arrays and data frames. Integers and floating-point numbers are
    numbers; strings, booleans and the categorical types of pandas and Polars are categories, whether a
    column comes alone, in a dictionary or in a data frame. The categories that such a type declares
    count as known, even if they do not occur.

    Args:
        columns: The columns by name: a tensor of ``N`` numbers, or an array of ``N`` categories.
        levels: The declared categories of a column, by its name.
        labels: Names of the entries, such as the index of a pandas frame, or None.

    Example:
        >>> from gp_distributions import MixedInputs
        >>> MixedInputs(age=[50.0, 60.0], arm=["drug", "placebo"]).blocks["arm"]
        Covariates(2, arm: 2 levels)
    """

    columns: Mapping[str, Tensor | npt.NDArray[Any]]
    levels: Mapping[str, tuple[Level, ...]]
    labels: npt.NDArray[Any] | None = None

    @classmethod
    def read(cls, data: Any, block: str) -> Covariates:
        """Read an array, a list, a series, a dictionary of columns or a data frame.

        Args:
            data: A frame of pandas, Polars or PyArrow, or of another library that narwhals reads; a
                dictionary of columns; or an array, tensor or list of ``N`` entries or ``N`` rows of
                numbers.
            block: Name of the block, which becomes the name of a single column without one.

        Raises:
            TypeError: If the data are none of these.
            ValueError: If a value is missing, a number is not finite, or a column is neither of numbers
                nor of categories.
        """
        if isinstance(data, Mapping):
            return cls.of(dict(data), block)
        if is_table(data):
            frame = table(data)
            columns = {name: column(frame, name) for name in frame.columns}
            return cls.of(columns, block, index_names(frame.to_native()))
        series: Any = nw.from_native(data, allow_series=True, pass_through=True)
        if isinstance(series, nw.Series):
            native = series.to_native()
            return cls.of({series.name or block: native}, block, index_names(native))
        refuse_mask(data, f"Block {block!r}")
        values = data if isinstance(data, Tensor) or _declared(data) is not None else _array(data)
        if values is None or values.ndim not in (1, 2) or 0 in values.shape[1:]:
            shape = "entries of unequal lengths"
            if values is not None:
                shape = f"{type(data).__name__} of shape {tuple(values.shape)}"
            raise ValueError(
                f"Block {block!r}: expected distributions, a data frame, or an array of shape (N,) or "
                f"(N, columns), got {shape}. Read a list of bags with PointClouds.from_list(bags)."
            )
        if values.ndim == 1:
            return cls.of({block: values}, block)
        return cls.of({i: values[:, i] for i in range(values.shape[1])}, block)

    @classmethod
    def of(cls, columns: Mapping[Any, Any], block: str, names: Names | None = None) -> Covariates:
        """Read columns by name.

        Args:
            columns: The columns: arrays, tensors, series or lists.
            block: Name of the block, for error messages.
            names: Names of the entries, or None.

        Raises:
            ValueError: As for :meth:`read`, or if lengths differ or there are no columns.
        """
        read: dict[str, Tensor | npt.NDArray[Any]] = {}
        levels: dict[str, tuple[Level, ...]] = {}
        for given, values in columns.items():
            name = str(given)
            where = f"Column {given!r} of block {block!r}" if given != block else f"Block {block!r}"
            if name in read:
                raise ValueError(
                    f"{where}: expected columns whose names differ as text, got another column "
                    f"{name!r}. Rename one of them."
                )
            reader = _Reader(where, names)
            read[name], declared = reader.read(values)
            if declared is not None:
                levels[name] = declared
        lengths = {name: len(values) for name, values in read.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(
                f"Block {block!r}: expected at least one column, and columns of one length, "
                f"got {lengths}."
            )
        return cls(read, levels, None if names is None else names.labels)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: slice | Tensor) -> Covariates:
        """Return the entries at a slice, or at a tensor of integers."""
        at = key.numpy(force=True) if isinstance(key, Tensor) else key
        columns = {
            name: values[key.to(values.device) if isinstance(key, Tensor) else key]
            if isinstance(values, Tensor)
            else values[at]
            for name, values in self.columns.items()
        }
        return Covariates(columns, self.levels, None if self.labels is None else self.labels[at])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Covariates):
            return NotImplemented
        return (
            list(self.columns) == list(other.columns)
            and dict(self.levels) == dict(other.levels)
            and np.array_equal(np.asarray(self.labels), np.asarray(other.labels))
            and all(map(_equal, self.columns.values(), other.columns.values()))
        )

    def __repr__(self) -> str:
        parts = [
            name if isinstance(values, Tensor) else f"{name}: {len(self.levels_of(name))} levels"
            for name, values in self.columns.items()
        ]
        return f"Covariates({', '.join([str(len(self)), *parts])})"

    def to(self, *args: Any, **kwargs: Any) -> Covariates:
        """Convert the dtype or device of the numbers, with the arguments of ``torch.Tensor.to``."""
        columns = {
            name: values.to(*args, **kwargs) if isinstance(values, Tensor) else values
            for name, values in self.columns.items()
        }
        return Covariates(columns, self.levels, self.labels)

    def levels_of(self, name: str) -> tuple[Level, ...]:
        """Return the categories of a column: the declared ones, or those that occur, sorted."""
        if name in self.levels:
            return self.levels[name]
        found = dict.fromkeys(self.columns[name].tolist())
        return tuple(sorted(found, key=lambda level: (type(level).__name__, level)))

    def check_categories(self, block: str) -> None:
        """Check, in training data, that no column of many categories consists mostly of numbers.

        One word among the numbers of a table makes all of them text. A column whose type declares its
        categories is not checked.

        Args:
            block: Name of the block, for error messages.

        Raises:
            ValueError: If there is such a column.
        """
        for name, values in self.columns.items():
            entries = values.tolist()
            levels = len(set(entries))
            if (
                name in self.levels
                or levels <= _FEW
                or not any(isinstance(e, str) for e in entries)
            ):
                continue
            words = [row for row, entry in enumerate(entries) if not is_number(entry)]
            if 2 * len(words) < len(entries):
                row = words[0] if words else 0
                place = row if self.labels is None else self.labels.tolist()[row]
                raise ValueError(
                    f"Column {name!r} of block {block!r}: expected numbers or categories, got "
                    f"{entries[row]!r} in row {place!r} of a column of numbers as text. Convert the "
                    "column to numbers when the file is read, such as with decimal=',' or "
                    "na_values=[...] in pandas.read_csv; or, if they are codes, declare "
                    f"{levels} categories: "
                    f'frame[{name!r}].astype("category") in pandas, pl.Enum in Polars.'
                )

    def _kinds(self) -> dict[str, str]:
        return {
            name: "numbers" if isinstance(values, Tensor) else "categories"
            for name, values in self.columns.items()
        }

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Covariates:
        """Concatenate covariates with the same columns; declared categories are joined.

        Raises:
            ValueError: If the columns differ, or a column holds numbers in one part and categories in
                another.
        """
        first, kinds = parts[0], [part._kinds() for part in parts]
        for number, found in enumerate(kinds):
            if found != kinds[0]:
                raise ValueError(
                    f"Expected the columns {kinds[0]} in all parts, got {found} in part {number}. "
                    "Convert each column to one type in all parts."
                )
        columns: dict[str, Any] = {}
        for name, values in first.columns.items():
            every: list[Any] = [part.columns[name] for part in parts]
            columns[name] = (
                torch.cat(every) if isinstance(values, Tensor) else np.concatenate(every)
            )
        levels: dict[str, tuple[Level, ...]] = {}
        for name in first.columns:
            # Levels that are declared keep their order; others that occur follow.
            declaring = sorted(parts, key=lambda part: name not in part.levels)
            if name in declaring[0].levels:
                every = [level for part in declaring for level in part.levels_of(name)]
                levels[name] = tuple(dict.fromkeys(every))
        given = [part.labels for part in parts if part.labels is not None]
        labels = np.concatenate(given) if len(given) == len(parts) else None
        return cls(columns, levels, labels)


def _equal(a: Tensor | npt.NDArray[Any], b: Tensor | npt.NDArray[Any]) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return same_tensor(a, b)
    return type(a) is type(b) and np.array_equal(a, b)


def _declared(values: Any) -> list[Any] | None:
    """Return the categories that the dtype of a column or an array declares, or None."""
    dtype: Any = getattr(values, "dtype", None)
    known = type(dtype).__name__ in ("CategoricalDtype", "Enum")
    return list(dtype.categories) if known else None


def _array(data: Any) -> npt.NDArray[Any] | None:
    try:
        return np.asarray(data)
    except ValueError:  # unequal lengths
        return None


@dataclass(frozen=True)
class _Reader:
    """Reads one column, and names it and its rows in error messages."""

    where: str
    names: Names | None

    def read(self, values: Any) -> tuple[Tensor | npt.NDArray[Any], tuple[Level, ...] | None]:
        """Return the numbers or the categories of a column, and the categories that it declares."""
        refuse_mask(values, self.where)
        declared = _declared(values)
        if declared is not None:
            levels = _Reader(self.where, None).categories(declared)
            return self.categories(list(values)), tuple(levels.tolist())
        if isinstance(values, Tensor) and values.dtype != torch.bool:
            return self.numbers(real_array(values, self.where)), None
        array = as_floats(np.asarray(values))
        if array.dtype.kind in _NUMBERS:
            return self.numbers(array), None
        if array.dtype.kind in _OBJECTS:
            return self.categories(array.tolist()), None
        raise ValueError(
            f"{self.where}: expected numbers or categories, got {array.dtype}. Convert it to numbers."
        )

    def numbers(self, values: Any) -> Tensor:
        dtype = torch.float32 if str(values.dtype) == "torch.float32" else torch.float64
        numbers = to_tensor(values, dtype, getattr(values, "device", torch.device("cpu")))
        bad = (~numbers.isfinite()).nonzero()
        if len(bad):
            row = int(bad[0])
            raise ValueError(
                f"{self.where}: expected finite numbers, got {numbers[row].item()} in {self._row(row)}. "
                "Fill in the value or drop the row."
            )
        return numbers

    def categories(self, values: list[Any]) -> npt.NDArray[Any]:
        entries = [v.item() if isinstance(v, np.generic) else v for v in values]
        truths = {value for value in entries if isinstance(value, bool)}
        for row, value in enumerate(entries):
            what, advice = "", "Convert the column to strings."
            if is_missing(value):
                what, advice = "a missing value", "Fill in the value or drop the row."
            elif not isinstance(value, _LEVELS):
                what = f"a {type(value).__name__}"
                if count_axes(value):
                    advice = (
                        "Pass a column of bags as PointClouds.from_list(column), or the whole frame to "
                        "MixedInputs.from_frame."
                    )
            elif not isinstance(value, bool) and value in truths:
                what = f"{value!r}, which equals {bool(value)} of another row,"
            if what:
                raise ValueError(
                    f"{self.where}: expected numbers, or strings, booleans or numbers as "
                    f"categories, got {what} in {self._row(row)}. {advice}"
                )
        return object_array(entries)

    def _row(self, row: int) -> str:
        return f"row {row if self.names is None else self.names.values.tolist()[row]!r}"
