"""Columns of numbers and categories beside distributions: ages, doses, treatments."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels, as_floats, is_missing, object_array, real_array
from gp_distributions.measures.tables import (
    Names,
    cells,
    column,
    index_names,
    is_table,
    joined_labels,
    table,
)
from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.rows.clouds import same_tensor

# A category: what files can hold and what compares as equal after reading it again.
Level: TypeAlias = str | bool | int | float
# Types of pandas and Polars that declare the categories of a column.
_DECLARING = ("CategoricalDtype", "Enum")
# The level of missing categories.
_MISSING = "missing"


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
    labels: Labels | None = None

    @classmethod
    def read(cls, data: Any, block: str, *, gaps: bool = False) -> Covariates:
        """Read an array, a list, a series, a dictionary of columns or a data frame.

        Args:
            data: A frame of pandas, Polars or PyArrow, or of another library that narwhals reads; a
                dictionary of columns; or an array, tensor or list of ``N`` entries or ``N`` rows of
                numbers.
            block: Name of the block, which becomes the name of a single column without one.
            gaps: Whether values may be missing: numbers become NaN, and categories the level "missing".

        Raises:
            TypeError: If the data are none of these.
            ValueError: If a value is missing, a number is not finite, or a column is neither of numbers
                nor of categories.
        """
        if isinstance(data, Mapping):
            return cls.of(data, block, gaps=gaps)
        if is_table(data):
            frame = table(data)
            columns = {name: column(frame, name) for name in frame.columns}
            return cls.of(columns, block, index_names(frame.to_native()), gaps=gaps)
        if cells(data) is not None:
            column_name = getattr(data, "name", None) or block
            return cls.of({column_name: data}, block, index_names(data), gaps=gaps)
        try:
            values: Any = data if hasattr(data, "ndim") else np.asarray(data)
        except ValueError:  # unequal lengths
            values = None
        if values is None or values.ndim not in (1, 2) or 0 in values.shape[1:]:
            raise ValueError(
                f"Block {block!r}: expected distributions, a data frame, or an array of shape (N,) or "
                f"(N, columns), got {getattr(values, 'shape', 'rows of unequal lengths')}. Read a list "
                "of bags with PointClouds.from_list(bags)."
            )
        if values.ndim == 1:
            return cls.of({block: values}, block, gaps=gaps)
        return cls.of({i: values[:, i] for i in range(values.shape[1])}, block, gaps=gaps)

    @classmethod
    def of(
        cls,
        columns: Mapping[Any, Any],
        block: str,
        names: Names | None = None,
        *,
        gaps: bool = False,
    ) -> Covariates:
        """Read columns by name.

        Args:
            columns: The columns: arrays, tensors, series or lists.
            block: Name of the block, for error messages.
            names: Names of the entries, or None.
            gaps: As for :meth:`read`.

        Raises:
            ValueError: As for :meth:`read`, or if lengths differ or there are no columns.
        """
        read: dict[str, Tensor | npt.NDArray[Any]] = {}
        levels: dict[str, tuple[Level, ...]] = {}
        for given, values in columns.items():
            name = str(given)
            if isinstance(values, str) or not hasattr(values, "__len__"):
                raise ValueError(
                    f"Block {block!r}: expected a list of values of {name!r}, got {values!r}. Pass "
                    f"[{values!r}] for one object."
                )
            where = f"Column {given!r} of block {block!r}" if given != block else f"Block {block!r}"
            dtype: Any = getattr(values, "dtype", None)
            declared = type(dtype).__name__ in _DECLARING
            read[name] = _column(
                _filled(values, declared) if gaps else values, where, names, declared, gaps
            )
            if declared:
                levels[name] = tuple(_column(list(dtype.categories), where, None, True).tolist())
                if gaps and _MISSING in read[name].tolist():
                    levels[name] = tuple(dict.fromkeys([*levels[name], _MISSING]))
        lengths = {name: len(values) for name, values in read.items()}
        if len(set(lengths.values())) != 1 or len(read) < len(columns):
            raise ValueError(
                f"Block {block!r}: expected columns of one length whose names differ as text, got "
                f"{lengths}."
            )
        return cls(read, levels, None if names is None else names.labels)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: slice | npt.NDArray[np.intp] | Tensor) -> Covariates:
        """Return the entries at a slice, or at an array of integers."""
        key = key.numpy(force=True) if isinstance(key, Tensor) else key
        columns = {name: values[key] for name, values in self.columns.items()}
        return Covariates(columns, self.levels, None if self.labels is None else self.labels[key])

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
        kinds = [{name: type(values) for name, values in p.columns.items()} for p in parts]
        if any(found != kinds[0] for found in kinds):
            raise ValueError(
                "Expected the same columns in all parts, of the same kinds, numbers or categories, got "
                f"{[*parts]}."
            )
        columns: dict[str, Any] = {}
        for name, kind in kinds[0].items():
            join: Any = torch.cat if kind is Tensor else np.concatenate
            columns[name] = join([part.columns[name] for part in parts])
        levels: dict[str, tuple[Level, ...]] = {}
        for name in dict.fromkeys(chain(*(part.levels for part in parts))):
            # Levels that are declared keep their order; others that occur follow.
            declaring = sorted(parts, key=lambda part: name not in part.levels)
            levels[name] = tuple(dict.fromkeys(chain(*(p.levels_of(name) for p in declaring))))
        return cls(columns, levels, joined_labels(parts))


def _equal(a: Tensor | npt.NDArray[Any], b: Tensor | npt.NDArray[Any]) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return same_tensor(a, b)
    return type(a) is type(b) and np.array_equal(a, b)


def _filled(values: Any, declared: bool) -> Any:
    """Return a column with NaN in place of missing numbers, and a level in place of categories."""
    if isinstance(values, Tensor):
        return values
    entries = np.asarray(values, dtype=object).tolist()
    gaps = [is_missing(entry) for entry in entries]
    if not any(gaps):
        return values
    known = [entry for entry, gap in zip(entries, gaps, strict=True) if not gap]
    numbers = known and not declared and as_floats(object_array(known)).dtype != object
    filler = math.nan if numbers else _MISSING
    return object_array([filler if gap else e for e, gap in zip(entries, gaps, strict=True)])


def _column(
    values: Any, where: str, names: Names | None, categories: bool = False, gaps: bool = False
) -> Tensor | npt.NDArray[Any]:
    """Return the numbers or the categories of a column; errors name the column and the row."""
    refuse_mask(values, where)
    bad: list[bool]
    if isinstance(values, Tensor) and values.dtype != torch.bool:
        read: Any = torch.as_tensor(real_array(values, where))
    else:
        read = as_floats(np.asarray(values))
        if read.dtype.kind in "iuf" and not categories:
            read = torch.from_numpy(read.astype(np.float64))
    if isinstance(read, Tensor):
        read = read if read.dtype == torch.float32 else read.double()
        expected, bad = "finite numbers", (~read.isfinite() & ~(gaps & read.isnan())).tolist()
    else:
        entries = [v.item() if isinstance(v, np.generic) else v for v in read.tolist()]
        known = (str, bool, int, float) if read.dtype.kind != "M" else ()
        bad = [is_missing(v) or not isinstance(v, known) for v in entries]
        expected, read = (
            "numbers, or text, booleans or numbers as categories",
            object_array(entries),
        )
    if any(bad):
        row = bad.index(True)
        place = row if names is None else names.values.tolist()[row]
        raise ValueError(
            f"{where}: expected {expected}, got {reprlib.repr(read.tolist()[row])} in row "
            f"{place!r}. Fill in a missing value, drop the row, or pass MixedInputs(..., "
            'missing="indicator"); convert other values to text or numbers, such as times to days by '
            "(times - times.min()) / pandas.Timedelta('1D'), and read bags with "
            "PointClouds.from_list, or the whole frame with MixedInputs.from_frame."
        )
    return read
