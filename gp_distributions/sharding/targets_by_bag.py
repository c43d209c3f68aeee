"""Targets by bag: a mapping, or a table with one row for each bag."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gp_distributions.sharding.tables import Layout, numbers, repeated
from gp_distributions.sharding.targets import check_finite, joined, number_array

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class TargetsByBag:
    """Targets in a table of their own.

    Attributes:
        keys: Names of bags.
        values: Their targets, one number or several for each.
    """

    keys: pyarrow.Array
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, targets: Any, layout: Layout) -> TargetsByBag:
        """Read a mapping, a series, a data frame or a Parquet file.

        Raises:
            TypeError: If the targets are something else.
            ValueError: If a column is missing, or a bag has several targets.
        """
        import pyarrow as pa

        series = hasattr(type(targets), "to_frame") and not hasattr(type(targets), "columns")
        if isinstance(targets, Mapping) or series:
            names = list(targets.index if series else targets)
            values = number_array(list(targets if series else targets.values()))
            keys = pa.array(names)
        else:
            table = _table(targets)
            wanted = [layout.bag, *layout.target]
            if not layout.target or any(table.column_names.count(name) != 1 for name in wanted):
                raise ValueError(
                    f"targets: expected a table with a column {layout.bag!r} and those that target= "
                    f"names, {list(layout.target)}; columns: {', '.join(table.column_names)}."
                )
            keys = table[layout.bag].combine_chunks()
            keys = keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys
            columns = [numbers(table[name], name) for name in layout.target]
            values = joined(columns, layout.single)
        if pa.types.is_dictionary(keys.type):
            keys = keys.cast(keys.type.value_type)
        if (twice := repeated(keys)) is not None:
            raise ValueError(f"targets: expected one row for each bag, got more for bag {twice!r}.")
        return cls(keys, values)

    def __call__(self, bags: pyarrow.Array, path: str) -> npt.NDArray[np.float64]:
        """Return targets in the order of bags.

        Args:
            bags: Names of bags.
            path: The file in which they are, for error messages.

        Raises:
            ValueError: If a bag has no target.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            keys = self.keys.cast(bags.type)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"targets: expected bags of type {bags.type}, as in {path}, got {self.keys.type}."
            ) from error
        places = pc.index_in(bags, value_set=keys)
        if places.null_count:
            missing = int(np.flatnonzero(places.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(
                f"Bag {bags[missing].as_py()!r} of {path}: expected a target, got "
                "none in targets. Leave out bags without a target."
            )
        values: npt.NDArray[np.float64] = self.values[places.to_numpy(zero_copy_only=False)]
        check_finite(values, bags.to_pylist() if not np.isfinite(values).all() else None, "targets")
        return values


def _table(targets: Any) -> pyarrow.Table:
    """Return a data frame, or the content of a Parquet file, as a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(targets, str | os.PathLike):
        return pq.read_table(targets)
    if isinstance(targets, pa.Table):
        return targets
    if hasattr(targets, "to_arrow"):  # Polars
        return targets.to_arrow()
    if hasattr(targets, "columns") and hasattr(targets, "dtypes"):
        return pa.Table.from_pandas(targets)
    raise TypeError(
        "targets: expected a mapping from bags to targets, a data frame or the path to a Parquet file, "
        f"got {type(targets).__name__}."
    )
