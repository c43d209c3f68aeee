"""Long tables of PyArrow with one row for each atom, whose bags lie one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import table
from gp_distributions.sharding.pieces import Contents
from gp_distributions.sharding.targets import constant_within_bags, joined, target_tensor

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Layout:
    """Which columns of a long table hold what.

    Attributes:
        bag: Name of the column that names the bag of each row.
        columns: Names of the columns of coordinates.
        weight: Name of the column of weights, or None for equal weights.
        target: Names of the columns of targets, which are constant within each bag.
        single: Whether there is one output without an axis of its own.
    """

    bag: str
    columns: tuple[str, ...]
    weight: str | None
    target: tuple[str, ...]
    single: bool

    @classmethod
    def of(
        cls,
        bag: str,
        columns: str | Sequence[str],
        weight: str | None,
        target: str | Sequence[str] | None,
    ) -> Layout:
        """Read the arguments of a constructor.

        Raises:
            ValueError: If there are no columns of coordinates.
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names:
            raise ValueError("Expected at least one column of coordinates, got none.")
        single = target is None or isinstance(target, str)
        targets = () if target is None else (target,) if isinstance(target, str) else tuple(target)
        return cls(bag, names, weight, targets, single)

    @property
    def numbers(self) -> list[str]:
        """Names of the columns that hold numbers, each once."""
        weight = [] if self.weight is None else [self.weight]
        return list(dict.fromkeys([*self.columns, *weight, *self.target]))

    def clouds(self, table: pyarrow.Table) -> Contents:
        """Read the clouds of a table, and their targets if it holds any.

        Raises:
            ValueError: If the content of a column is wrong; the message names the bag.
        """
        offsets, labels = bags(table[self.bag], self.bag)
        if not len(table):  # as partitions of a data frame may be
            one = np.zeros((1, len(self.columns))), [0, 1], None, np.zeros(1, dtype=labels.dtype)
            return PointClouds.from_ragged(*one)[:0], self.targets(table, offsets, labels)
        points = np.empty((len(table), len(self.columns)))
        for axis, name in enumerate(self.columns):
            points[:, axis] = numbers(table[name], name)
        weights = None if self.weight is None else numbers(table[self.weight], self.weight)
        clouds = PointClouds.from_ragged(points, offsets, weights, labels)
        return clouds, self.targets(table, offsets, labels)

    def targets(
        self, table: pyarrow.Table, offsets: npt.NDArray[np.int64], labels: npt.NDArray[Any]
    ) -> Any:
        """Read the targets of bags, ``B`` or ``B x outputs``; None if there are none.

        Raises:
            ValueError: If a target is not finite, or not constant within a bag.
        """
        if not self.target:
            return None
        columns = [
            constant_within_bags(numbers(table[name], name), offsets, labels, name)
            for name in self.target
        ]
        return target_tensor(joined(columns, self.single), len(labels))


def bags(column: pyarrow.ChunkedArray, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Find the bags of a column that names the bag of each row.

    Returns:
        The ``B + 1`` rows at which bags begin, and the number of rows; the ``B`` names.

    Raises:
        ValueError: If the name of a bag is missing.
    """
    starts, names = runs(column, name)
    twice = repeated(names)
    if twice is not None:
        raise ValueError(
            f"Bag {twice!r}: expected all rows of a bag next to each other, got other rows between "
            f"them. Sort the table by {name!r}."
        )
    return np.append(starts, len(column)), names.to_numpy(zero_copy_only=False)


def runs(column: pyarrow.ChunkedArray, name: str) -> tuple[npt.NDArray[np.int64], pyarrow.Array]:
    """Return the rows at which the value of a column changes, the first included, and the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    named = kind.value_type if pa.types.is_dictionary(kind) else kind
    strange = pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    if strange or pa.types.is_float16(named):  # which PyArrow does not compare
        raise ValueError(
            f"Column {name!r}: expected bags named by text, numbers or dates, got {kind}."
        )
    values = plain(column)
    row = pc.index(pc.is_null(values, nan_is_null=True), pa.scalar(True)).as_py()
    if row >= 0:
        raise ValueError(
            f"Column {name!r}: expected a bag for each row, got a missing value in row {row} "
            "(counted from 0)."
        )
    found = pc.run_end_encode(values, pa.int64())
    ends = found.run_ends.to_numpy()
    return np.append(0, ends)[: len(ends)], found.values


def plain(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    """Return a column as one array, of a type that PyArrow can compare."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):  # of a categorical column
        kind = kind.value_type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):  # of Polars
        kind = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    values = column.cast(kind).combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # as newer versions of PyArrow return none
        values = values.chunk(0) if values.num_chunks else pa.array([], type=kind)
    return values


def arrow_table(frame: Any, needed: Sequence[str]) -> pyarrow.Table:
    """Return columns of a data frame of any library as a table, in which an index of pandas counts too.

    Raises:
        TypeError: If the object is not a data frame.
        ValueError: If it lacks a column, or has two of one name.
    """
    index = getattr(getattr(frame, "index", None), "name", None)
    if index in needed and index not in frame.columns:  # Dask's set_index puts it there
        frame = frame.reset_index()
    names = list(dict.fromkeys(needed))
    return table(frame, names).select(names).to_arrow().select(names)


def repeated(values: pyarrow.Array | pyarrow.ChunkedArray) -> Any:
    """Return a value that occurs more than once, or None if there is none."""
    import pyarrow.compute as pc

    if len(pc.unique(values)) == len(values):
        return None
    return next(v["values"] for v in values.value_counts().to_pylist() if v["counts"] > 1)


def numbers(
    column: pyarrow.ChunkedArray, name: str, *, within: str = ""
) -> npt.NDArray[np.float64]:
    """Return a column as numbers in double precision, in which missing values are NaN.

    Args:
        column: The column.
        name: Its name, for error messages.
        within: What it belongs to, for error messages.

    Raises:
        ValueError: If the column does not hold numbers.
    """
    import pyarrow as pa

    where = f"{within}, column" if within else "Column"
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ValueError(f"{where} {name!r}: expected a column of numbers, got {column.type}.")
    try:
        return column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{where} {name!r}: expected numbers in double precision: {error}."
        ) from error
