"""Pieces that Dask computes: delayed values and the partitions of collections."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.sharding.pieces import Contents, Piece
from gp_distributions.sharding.tables import (
    Layout,
    arrow_table,
    repeated,
    runs,
    target_tensor,
)
from gp_distributions.warnings import CostWarning, warn


@dataclass(frozen=True, eq=False)
class DelayedPiece(Piece):
    """A value that Dask computes.

    Attributes:
        delayed: The delayed value; None on a worker, which is given the value.
        key: The key by which Dask knows it.
        number: Number of the piece.
        layout: The columns, if the value is a data frame.
    """

    delayed: Any
    key: str
    number: int
    layout: Layout | None

    @property
    def name(self) -> str:  # type: ignore[override]
        """The key by which Dask knows the value."""
        return f"delayed piece {self.key}"

    @property
    def dim(self) -> int | None:  # type: ignore[override]
        """Number of columns of coordinates, if they are named."""
        return None if self.layout is None else len(self.layout.columns)

    def remote(self, client: Any) -> tuple[Piece, list[Any]]:
        """Let the cluster compute the value, which may depend on others that it holds."""
        return replace(self, delayed=None), [client.compute(self.delayed)]

    def read(self, *inputs: Any) -> Contents:
        """Read the clouds and their targets."""
        value = inputs[0] if inputs else self.delayed.compute()
        if self.layout is not None:
            layout, table = self.layout, arrow_table(value, self.layout.needed)
            starts, names = runs(table[layout.bag], layout.bag)
            if (twice := repeated(names)) is not None:
                raise ValueError(
                    f"Bag {twice!r}: expected all rows of a bag next to each other, got other rows "
                    f"between them. Sort the table by {layout.bag!r}."
                )
            labels = names.to_numpy(zero_copy_only=False)
            return layout.contents(table, np.append(starts, len(table)), labels)
        if isinstance(value, tuple) and len(value) != 2:
            raise ValueError(f"Expected (clouds, targets), got a tuple of {len(value)} entries.")
        X, y = value if isinstance(value, tuple) else (value, None)
        if not isinstance(X, PointClouds):
            stacked = isinstance(X, np.ndarray | Tensor)
            X = PointClouds(X) if stacked else PointClouds.from_list(X)
        if len(X.batch_shape) != 1:
            raise ValueError(
                f"Expected clouds with one batch axis, got batch shape {tuple(X.batch_shape)}."
            )
        return X, None if y is None else target_tensor(y, len(X))

    def describe(self, *, first: bool = True) -> Any:
        """Return the number and the layout, and of a first piece its content.

        The keys of Dask differ between processes, so they are no part of it.
        """
        layout = self.layout and vars(self.layout)
        if not first:
            return self.number, layout
        clouds, targets = self.read()
        return self.number, layout, clouds.points, clouds.weights, clouds.labels, targets


def delayed_pieces(values: Any, layout: Layout | None) -> list[DelayedPiece]:
    """Make a piece of each delayed value, or each partition of a collection.

    Raises:
        TypeError: If there are other values.
        ValueError: If there are none.
    """
    parts = values.to_delayed() if hasattr(values, "to_delayed") else values
    parts = parts.ravel().tolist() if isinstance(parts, np.ndarray) else list(parts)
    if not parts:
        raise ValueError("Expected at least one delayed piece, got none.")
    for part in parts:
        if not (hasattr(part, "dask") and hasattr(part, "key")):
            raise TypeError(
                "Expected a Dask collection or a list of delayed values, got an entry of type "
                f"{type(part).__name__}. Wrap the function that reads a piece in dask.delayed."
            )
    _warn_if_shared(parts)
    return [DelayedPiece(part, part.key, number, layout) for number, part in enumerate(parts)]


def _warn_if_shared(parts: list[Any]) -> None:
    """Warn if pieces depend on as many common tasks as there are pieces, as they do after a shuffle."""
    if len(parts) < 2:
        return
    from dask.optimization import cull

    first, last = (set(cull(dict(part.dask), [part.key])[0]) for part in (parts[0], parts[-1]))
    common = len(first & last)
    if common >= len(parts):
        warn(
            f"Each of {len(parts)} pieces depends on {common} tasks that other pieces depend on, too, "
            "as after a shuffle (set_index, sort_values, merge). A pass computes a few pieces at a "
            "time, and these tasks again for each of them. Call .persist() before from_delayed if the "
            "data fit into memory, or write them to Parquet files for from_parquet.",
            CostWarning,
        )
