"""Columns of numbers and categories beside distributions: ages, doses, treatments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import as_floats, is_missing, real_array, to_tensor
from gp_distributions.measures.bags import count_axes
from gp_distributions.measures.columns import object_array
from gp_distributions.measures.names import index_names
from gp_distributions.measures.tables import check_texts, column, column_names, index_of, opened
from gp_distributions.numerics.masks import refuse_mask
from gp_distributions.rows.clouds import same_tensor

# A category: what files can hold and what compares as equal after reading it again.
Level: TypeAlias = str | bool | int | float
_LEVELS = (str, bool, int, float)
# Kinds of NumPy arrays that hold numbers, and those that hold text, booleans or objects.
_NUMBERS, _OBJECTS = "iuf", "OUSTb"
_EXPECTED = "expected distributions, a data frame, or an array of shape (N,) or (N, columns), got"
_BAGS = "Read a list of bags with PointClouds.from_list(bags)."


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
            return cls._read_columns(data, block)
        if hasattr(data, "to_frame") and not hasattr(data, "columns"):
            name = data.name
            data = data.to_frame() if name is not None else data.to_frame(name=block)
        if hasattr(type(data), "collect"):
            data = data.collect()
        if hasattr(data, "columns") or hasattr(type(data), "column_names"):
            return cls._read_frame(data, block)
        return cls._read_array(data, block)

    @classmethod
    def _read_frame(cls, data: Any, block: str) -> Covariates:
        frame: Any = opened(data, [])
        names = column_names(frame)
        if not names:
            raise ValueError(f"Block {block!r}: expected at least one column, got none.")

        def values(name: Any) -> Any:
            found = column(frame, name)
            return found if _declared(frame[name]) is None else frame[name]

        named = index_names(frame)
        labels = None if named is None else named.labels
        return cls._of(names, values, f" of block {block!r}", index_of(frame), labels)

    @classmethod
    def _read_columns(cls, columns: Mapping[Any, Any], block: str) -> Covariates:
        read = cls._of(list(columns), columns.__getitem__, f" of block {block!r}")
        lengths = {name: len(values) for name, values in read.columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"Block {block!r}: expected columns of one length, got {lengths}.")
        return read

    @classmethod
    def _read_array(cls, data: Any, block: str) -> Covariates:
        refuse_mask(data, f"Block {block!r}")
        values = (
            data if isinstance(data, Tensor) or _declared(data) is not None else _array(data, block)
        )
        if values.ndim not in (1, 2) or 0 in values.shape[1:]:
            raise ValueError(
                f"Block {block!r}: {_EXPECTED} {type(data).__name__} of shape {tuple(values.shape)}."
                + f" {_BAGS}" * (values.ndim > 2)
            )
        if values.ndim == 1:
            column, declared = _read_column(values, f"Block {block!r}", None)
            return cls({block: column}, {} if declared is None else {block: declared})
        numbers = list(range(values.shape[1]))
        return cls._of(numbers, lambda i: values[:, i], f" of block {block!r}")

    @classmethod
    def _of(
        cls,
        names: list[Any],
        values: Callable[[Any], Any],
        where: str,
        index: npt.NDArray[Any] | None = None,
        labels: npt.NDArray[Any] | None = None,
    ) -> Covariates:
        """Read columns that a function returns by name; messages name rows by the index."""
        check_texts(names, where)
        columns: dict[str, Tensor | npt.NDArray[Any]] = {}
        levels: dict[str, tuple[Level, ...]] = {}
        for name in names:
            column, declared = _read_column(values(name), f"Column {name!r}{where}", index)
            columns[str(name)] = column
            if declared is not None:
                levels[str(name)] = declared
        return cls(columns, levels, labels)

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

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Covariates:
        """Concatenate covariates with the same columns; declared categories are joined.

        Raises:
            ValueError: If the columns differ, or a column holds numbers in one part and categories in
                another.
        """
        first = parts[0]
        for part in parts[1:]:
            if set(part.columns) != set(first.columns):
                raise ValueError(
                    f"Expected columns {list(first.columns)}, got {list(part.columns)}."
                )
        columns = {
            name: _joined([part.columns[name] for part in parts], name) for name in first.columns
        }
        levels: dict[str, tuple[Level, ...]] = {}
        for name in first.columns:
            # Levels that are declared keep their order; others that occur follow.
            declaring = sorted(parts, key=lambda part: name not in part.levels)
            if name in declaring[0].levels:
                found = dict.fromkeys(level for part in declaring for level in part.levels_of(name))
                levels[name] = tuple(found)
        given = [part.labels for part in parts if part.labels is not None]
        labels = np.concatenate(given) if len(given) == len(parts) else None
        return cls(columns, levels, labels)


def _equal(a: Tensor | npt.NDArray[Any], b: Tensor | npt.NDArray[Any]) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return same_tensor(a, b)
    return type(a) is type(b) and np.array_equal(a, b)


def _joined(values: list[Any], name: str) -> Tensor | npt.NDArray[Any]:
    kinds = ["numbers" if isinstance(part, Tensor) else "categories" for part in values]
    if len(set(kinds)) > 1:
        other = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        raise ValueError(
            f"Column {name!r}: expected {kinds[0]} in all parts, got {kinds[other]} in part {other}. "
            "Convert the column to one type in all parts."
        )
    if isinstance(values[0], Tensor):
        return torch.cat(values)
    return np.concatenate(values)


def _declared(values: Any) -> npt.NDArray[Any] | None:
    """Return the categories that the dtype of a column or an array declares, or None."""
    dtype = getattr(values, "dtype", None)
    if type(dtype).__name__ not in ("CategoricalDtype", "Enum"):
        return None
    return object_array(list(dtype.categories))  # type: ignore[union-attr]


def _read_column(
    values: Any, where: str, labels: npt.NDArray[Any] | None
) -> tuple[Tensor | npt.NDArray[Any], tuple[Level, ...] | None]:
    """Return the numbers or the categories of a column, and the categories that it declares."""
    refuse_mask(values, where)
    declared = _declared(values)
    if declared is None:
        return _numbers_or_categories(values, where, labels), None
    levels = tuple(_categories(declared, where, None).tolist())
    return _categories(object_array(list(values)), where, labels), levels


def _array(data: Any, block: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(data)
    except ValueError:  # unequal lengths
        raise ValueError(
            f"Block {block!r}: {_EXPECTED} entries of unequal lengths. {_BAGS}"
        ) from None


def _numbers_or_categories(
    values: Any, where: str, labels: npt.NDArray[Any] | None
) -> Tensor | npt.NDArray[Any]:
    if isinstance(values, Tensor) and values.dtype != torch.bool:
        return _finite(real_array(values, where), where, labels)
    array = np.asarray(values)
    if array.dtype.kind in _NUMBERS:
        return _finite(array, where, labels)
    if array.dtype.kind not in _OBJECTS:
        raise ValueError(
            f"{where}: expected numbers or categories, got {array.dtype}. Convert it to numbers."
        )
    entries = array.tolist()
    _check_present(entries, where, labels)
    numbers = as_floats(array)
    if numbers.dtype.kind in _NUMBERS:
        return _finite(numbers, where, labels)
    return _categories(object_array(entries), where, labels)


def _finite(values: Any, where: str, labels: npt.NDArray[Any] | None) -> Tensor:
    dtype = torch.float32 if str(values.dtype) == "torch.float32" else torch.float64
    numbers = to_tensor(values, dtype, getattr(values, "device", torch.device("cpu")))
    bad = (~numbers.isfinite()).nonzero()
    if len(bad):
        row = int(bad[0])
        raise ValueError(
            f"{where}: expected finite numbers, got {numbers[row].item()} in "
            f"{_row(row, labels)}. Fill in the value or drop the row."
        )
    return numbers


def _categories(
    values: npt.NDArray[Any], where: str, labels: npt.NDArray[Any] | None
) -> npt.NDArray[Any]:
    entries = [v.item() if isinstance(v, np.generic) else v for v in values.tolist()]
    _check_present(entries, where, labels)
    for row, value in enumerate(entries):
        if not isinstance(value, _LEVELS):
            advice = "Convert the column to strings."
            if count_axes(value):
                advice = (
                    "Pass a column of bags as PointClouds.from_list(column), or the whole frame to "
                    "MixedInputs.from_frame."
                )
            raise ValueError(
                f"{where}: expected numbers, or strings, booleans or numbers as categories, got a "
                f"{type(value).__name__} in {_row(row, labels)}. {advice}"
            )
    truths = {value for value in entries if isinstance(value, bool)}
    for row, value in enumerate(entries):
        if not isinstance(value, bool) and value in truths:
            raise ValueError(
                f"{where}: expected categories that differ, got {value!r} in {_row(row, labels)}, which "
                f"equals {bool(value)} in another row. Convert the column to strings."
            )
    return object_array(entries)


def _check_present(entries: list[Any], where: str, labels: npt.NDArray[Any] | None) -> None:
    for row, value in enumerate(entries):
        if not count_axes(value) and is_missing(value):
            raise ValueError(
                f"{where}: expected a value, got a missing one in {_row(row, labels)}. Fill in the "
                "value or drop the row."
            )


def _row(row: int, labels: npt.NDArray[Any] | None) -> str:
    return f"row {row}" if labels is None else f"row {labels.tolist()[row]!r}"
