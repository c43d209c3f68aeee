"""Pieces that Dask computes: delayed values and the partitions of collections."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.sharding.digests import digest
from gp_distributions.sharding.optional import needed
from gp_distributions.sharding.pieces import Contents
from gp_distributions.sharding.tables import Layout, arrow_table
from gp_distributions.sharding.targets import target_tensor
from gp_distributions.warnings import CostWarning, warn


@dataclass(frozen=True, eq=False)
class DelayedPiece:
    """A value that Dask computes.

    Attributes:
        delayed: The delayed value.
        number: Number of the piece.
        layout: The columns, if the value is a data frame.
    """

    delayed: Any
    number: int
    layout: Layout | None

    @property
    def name(self) -> str:
        """The key by which Dask knows the value."""
        return f"delayed piece {self.delayed.key}"

    @property
    def count(self) -> None:
        """Unknown until the piece is computed."""
        return

    @property
    def dim(self) -> int | None:
        """Number of columns of coordinates, if they are named."""
        return None if self.layout is None else len(self.layout.columns)

    def remote(self, client: Any) -> tuple[DelayedPiece, list[Any]]:
        """Let the cluster compute the value, which may depend on others that it holds."""
        return replace(self, delayed=_Key(self.delayed.key)), [client.compute(self.delayed)]

    def read(self, *inputs: Any) -> Contents:
        """Read the clouds and their targets."""
        value = inputs[0] if inputs else self.delayed.compute()
        return self._contents(value)

    def targets(self) -> Tensor | None:
        """Compute the piece, and return its targets."""
        return self.read()[1]

    def labels(self) -> npt.NDArray[Any] | None:
        """Compute the piece, and return its labels."""
        return self.read()[0].labels

    def describe(self, *, first: bool = True) -> Hashable:
        """Return the number and the layout, and of a first piece its content.

        The keys of Dask differ between processes, so they are no part of it.
        """
        if not first:
            return self.number, self.layout
        clouds, targets = self.read()
        return (
            self.number,
            self.layout,
            digest(clouds.points, clouds.weights, clouds.labels, targets),
        )

    def _contents(self, value: Any) -> Contents:
        if self.layout is not None:
            return self.layout.clouds(arrow_table(value, [self.layout.bag, *self.layout.numbers]))
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


@dataclass(frozen=True)
class _Key:
    key: str


def delayed_pieces(values: Any, layout: Layout | None) -> list[DelayedPiece]:
    """Make a piece of each delayed value, or each partition of a collection.

    Raises:
        ImportError: If a package is missing.
        TypeError: If there are other values.
        ValueError: If there are none.
    """
    needed("dask", "dask", "Delayed pieces")
    if layout is not None:
        needed("pyarrow", "arrow", "Data frames in pieces")
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
    return [DelayedPiece(part, number, layout) for number, part in enumerate(parts)]


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
