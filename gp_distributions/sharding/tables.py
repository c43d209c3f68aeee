"""Long tables of PyArrow with one row for each atom, whose bags lie one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import table
from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.sharding.pieces import Contents, named

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
        targets = (target,) if isinstance(target, str) else tuple(target or ())
        return cls(bag, names, weight, targets, single)

    @property
    def needed(self) -> list[str]:
        """Names of all columns, each once."""
        weight = [] if self.weight is None else [self.weight]
        return list(dict.fromkeys([self.bag, *self.columns, *weight, *self.target]))

    def contents(
        self, table: pyarrow.Table, offsets: npt.NDArray[np.int64], labels: Labels
    ) -> Contents:
        """Read the clouds of a table, and their targets if it holds any.

        Args:
            table: The table.
            offsets: The ``B + 1`` rows at which bags begin, and their number.
            labels: The names of the bags.

        Raises:
            ValueError: If the content of a column is wrong; the message names the bag.
        """
        targets = self.targets(table, offsets, labels)
        if not len(table):  # as partitions of a data frame may be
            one = np.zeros((1, len(self.columns))), [0, 1], None, np.zeros(1, dtype=labels.dtype)
            return PointClouds.from_ragged(*one)[:0], targets
        points = np.stack([numbers(table, name) for name in self.columns], axis=-1)
        weights = None if self.weight is None else numbers(table, self.weight)
        return PointClouds.from_ragged(points, offsets, weights, labels), targets

    def targets(
        self, table: pyarrow.Table, offsets: npt.NDArray[np.int64], labels: Labels
    ) -> Tensor | None:
        """Read the targets of bags, ``B`` or ``B x outputs``; None if there are none.

        Raises:
            ValueError: If a target is not finite, or not constant within a bag.
        """
        if not self.target:
            return None
        values = np.stack([numbers(table, name) for name in self.target], axis=-1)
        first = values[offsets[:-1]]
        name = f"column {', '.join(self.target)}"
        targets = target_tensor(first[:, 0] if self.single else first, len(labels), labels, name)
        wrong = (values != np.repeat(first, np.diff(offsets), axis=0)).any(-1).nonzero()[0]
        if len(wrong):
            bag = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
            raise ValueError(
                f"Bag {labels[bag]!r}: expected one value of {name} in all rows of the bag, got "
                f"{first[bag].tolist()} and {values[wrong[0]].tolist()}. A target belongs to a bag; "
                "choose one, or pass a table with one row for each bag as targets=."
            )
        return targets


def target_tensor(values: Any, count: int, labels: Any = None, name: str = "targets") -> Tensor:
    """Return targets as a ``count`` or ``count x outputs`` tensor in double precision.

    Args:
        values: The targets.
        count: Number of bags.
        labels: Names of the bags, for error messages.
        name: Name of the targets, for error messages.

    Raises:
        ValueError: If the targets are of another shape, or not finite.
    """
    refuse_mask(values, "Targets")
    targets = torch.as_tensor(values, dtype=torch.float64)
    if targets.dim() not in (1, 2) or len(targets) != count:
        raise ValueError(
            f"{name}: expected shape ({count},) or ({count}, outputs), one row for each bag, got "
            f"{tuple(targets.shape)}."
        )
    finite = targets.isfinite()
    wrong = (~(finite if finite.dim() == 1 else finite.all(-1))).nonzero()
    if len(wrong):
        bag = int(wrong[0])
        raise ValueError(
            f"Bag {bag if labels is None else repr(labels[bag])}: expected a finite target in {name}, "
            f"got {targets[bag].tolist()}. Leave out bags without a target."
        )
    return targets


def runs(column: pyarrow.ChunkedArray, name: str) -> tuple[npt.NDArray[np.int64], pyarrow.Array]:
    """Return the rows at which the value of a column changes, the first included, and the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

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

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string_view(kind):  # of Polars
        kind = pa.large_string()
    return pa.concat_arrays([pa.array([], kind), *column.cast(kind).chunks])


def arrow_table(frame: Any, needed: Sequence[str]) -> pyarrow.Table:
    """Return columns of a data frame of any library as a table, in which an index of pandas counts too.

    Raises:
        TypeError: If the object is not a data frame.
        ValueError: If it lacks a column, or has two of one name.
    """
    index = getattr(getattr(frame, "index", None), "name", None)
    if index in needed and index not in frame.columns:  # Dask's set_index puts it there
        frame = frame.reset_index()
    return table(frame, needed).select(needed).to_arrow().select(needed)


def repeated(values: pyarrow.Array | pyarrow.ChunkedArray) -> Any:
    """Return a value that occurs more than once, or None if there is none."""
    import pyarrow.compute as pc

    if len(pc.unique(values)) == len(values):
        return None
    return next(v["values"] for v in values.value_counts().to_pylist() if v["counts"] > 1)


def numbers(table: pyarrow.Table, name: str) -> npt.NDArray[np.float64]:
    """Return a column as numbers in double precision, in which missing values are NaN.

    Raises:
        PieceError: If the column does not hold numbers.
    """
    with named(f"column {name!r}"):
        return table[name].cast("float64").to_numpy()
