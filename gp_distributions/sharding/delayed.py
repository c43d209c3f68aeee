"""Pieces that Dask computes: delayed values and the partitions of collections."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.sharding.digests import digest
from gp_distributions.sharding.optional import needed
from gp_distributions.sharding.pieces import Contents, PieceError
from gp_distributions.sharding.tables import Layout
from gp_distributions.sharding.targets import target_tensor


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

    def describe(self) -> Hashable:
        """Return the number, and the content of the first piece: keys differ between processes."""
        if self.number:
            return self.number
        clouds, targets = self.read()
        return digest(clouds.points, clouds.weights, targets)

    def _contents(self, value: Any) -> Contents:
        if self.layout is not None:
            return self.layout.clouds(_arrow(value, self.layout))
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


def delayed_pieces(values: Any, layout: Layout | None) -> Iterator[DelayedPiece]:
    """Make a piece of each delayed value, or each partition of a collection.

    Raises:
        TypeError: If there are other values.
        ValueError: If there are none.
    """
    needed("dask", "dask", "Delayed pieces")
    parts = values.to_delayed() if hasattr(values, "to_delayed") else values
    parts = parts.ravel().tolist() if isinstance(parts, np.ndarray) else list(parts)
    if not parts:
        raise ValueError("Expected at least one delayed piece, got none.")
    for number, part in enumerate(parts):
        if not (hasattr(part, "dask") and hasattr(part, "key")):
            raise TypeError(
                "Expected a Dask collection or a list of delayed values, got an entry of type "
                f"{type(part).__name__}. Wrap the function that reads a piece in dask.delayed."
            )
        yield DelayedPiece(part, number, layout)


def _arrow(frame: Any, layout: Layout) -> Any:
    """Return a data frame as a table with its bags next to each other, in order of appearance."""
    needed("pyarrow", "arrow", "Data frames in pieces")
    import pyarrow as pa

    if hasattr(frame, "index") and frame.index.name == layout.bag:  # Dask's set_index puts it there
        frame = frame.reset_index()
    wanted = [layout.bag, *layout.numbers]
    missing = [name for name in wanted if name not in list(frame.columns)]
    if missing:
        raise PieceError(f"Expected a column {missing[0]!r}; columns: {list(frame.columns)}.")
    return pa.Table.from_pandas(frame[wanted], preserve_index=False)
