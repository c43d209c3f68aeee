"""Targets by bag: a mapping, or a table with one row for each bag."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gp_distributions.sharding.parquet import read_table
from gp_distributions.sharding.tables import (
    Layout,
    arrow_table,
    numbers,
    plain,
    repeated,
)
from gp_distributions.sharding.targets import check_finite, joined, number_array

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class TargetsByBag:
    """Targets in a table of their own.

    Attributes:
        keys: Names of bags.
        values: Their targets, one number or several for each.
        name: Name of the targets, for error messages.
    """

    keys: pyarrow.Array
    values: npt.NDArray[np.float64]
    name: str = "targets"

    @classmethod
    def of(cls, targets: Any, layout: Layout) -> TargetsByBag:
        """Read a mapping, a series, a data frame or a Parquet file.

        Raises:
            TypeError: If the targets are something else.
            ValueError: If a file cannot be read, a column is missing, or a target is not a number.
        """
        import pyarrow as pa

        name = "targets"
        if isinstance(targets, str | os.PathLike):
            name = f"targets ({os.fspath(targets)})"
            targets = read_table(os.fspath(targets))
        series = _is_series(targets)
        if isinstance(targets, Mapping) or series:
            names = list(targets.index if series else targets)
            values = number_array(list(targets if series else targets.values()))
            keys = pa.chunked_array([pa.array(names)])
        else:
            table = _table(targets, [layout.bag, *layout.target], name)
            if not layout.target:
                raise ValueError(
                    f"{name}: expected target= to name the columns of targets of a table, got none."
                )
            keys = table[layout.bag]
            columns = [numbers(table[each], each, within=name) for each in layout.target]
            values = joined(columns, layout.single)
        return cls(plain(keys), values, name)

    def __call__(self, bags: pyarrow.ChunkedArray, paths: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return targets in the order of bags.

        Args:
            bags: Names of bags, one chunk for each file.
            paths: The files, for error messages.

        Raises:
            ValueError: If a bag has no target, or several.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            keys = self.keys.cast(bags.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(
                f"{self.name}: expected bags of type {bags.type}, as in {paths[0]}, got "
                f"{self.keys.type}."
            ) from error
        if (twice := repeated(keys)) is not None:
            raise ValueError(
                f"{self.name}: expected one row for each bag, got more for bag {twice!r}."
            )
        places = pc.index_in(bags, value_set=keys)
        if places.null_count:
            missing = int(np.flatnonzero(places.is_null().to_numpy())[0])
            ends = np.cumsum([len(chunk) for chunk in bags.chunks])
            path = paths[int(np.searchsorted(ends, missing, side="right"))]
            raise ValueError(
                f"Bag {bags[missing].as_py()!r} of {path}: expected a target, got "
                f"none in {self.name}. Leave out bags without a target."
            )
        values: npt.NDArray[np.float64] = self.values[places.to_numpy()]
        check_finite(values, bags.to_pylist() if not np.isfinite(values).all() else None, self.name)
        return values


def _is_series(targets: Any) -> bool:
    """Return whether targets are a series whose index names the bags."""
    column = hasattr(type(targets), "to_frame") and not hasattr(type(targets), "columns")
    return column and hasattr(targets, "index")


def _table(targets: Any, needed: list[str], name: str) -> pyarrow.Table:
    """Return columns of a data frame as a table."""
    try:
        return arrow_table(targets, needed)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    except TypeError as error:
        raise TypeError(
            "targets: expected a mapping from bags to targets, a series of pandas whose index names the "
            f"bags, a data frame or the path to a Parquet file, got {type(targets).__name__}."
        ) from error
