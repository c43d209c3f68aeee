"""Data frames that hold bags in the cells of some columns, beside columns of numbers and categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures.arrays import is_missing, real_array, to_tensor
from gp_distributions.measures.columns import entries
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import column, opened


def is_frame(data: Any) -> bool:
    """Return whether an object is a data frame in memory: one with a ``columns`` or ``column_names``."""
    named = hasattr(type(data), "column_names") or hasattr(data, "columns")
    return named and hasattr(data, "__getitem__") and getattr(data, "ndim", 2) == 2


def has_bags_and_more(frame: Any) -> bool:
    """Return whether a frame has several columns, some of which hold bags."""
    names = _names(frame)
    # Columns of a matrix may share a name in some versions of scikit-learn.
    return len(set(names)) == len(names) > 1 and bool(_bags(opened(frame, [])))


def split_frame(data: Any, covariates: str) -> dict[str, Any]:
    """Return the blocks of a frame: clouds for each column of bags, and a frame of the other columns.

    Args:
        data: A data frame.
        covariates: Name of the block of the other columns.

    Raises:
        TypeError: If ``data`` is not a data frame.
        ValueError: If the name is that of a column of bags, or a bag is invalid.
    """
    frame: Any = opened(data.collect() if hasattr(type(data), "collect") else data, [])
    bags = _bags(frame)
    if covariates in bags:
        raise ValueError(
            f"Expected a name of the block of covariates that is not a column of bags, got "
            f"{covariates!r}. Pass another one as covariates=."
        )
    index = getattr(frame, "index", None)
    counts = (
        index is None or type(index).__name__ == "RangeIndex"
    )  # counts rows, does not name them
    labels = None if counts else np.array(index)
    blocks: dict[str, Any] = {}
    for name, cells in bags.items():
        clouds = _clouds(name, cells)
        blocks[str(name)] = PointClouds._unchecked(clouds.points, clouds.weights, labels=labels)
    others = [name for name in _names(frame) if name not in bags]
    if others:
        arrow = hasattr(type(frame), "column_names")
        blocks[covariates] = frame.select(others) if arrow else frame[others]
    return blocks


def _bags(frame: Any) -> dict[str, list[Any]]:
    """Return the cells of the columns of bags in an opened frame, by the name of the column.

    A column holds bags if its first value is an array, a list, a tuple or a tensor with one or two axes.
    """
    found = {}
    for name in _names(frame):
        dtype = getattr(frame[name], "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind != "O":
            continue  # wide frames of numbers
        values = column(frame, name)
        if values.ndim > 1:  # cells of equal lengths
            found[name] = list(values)
        elif values.dtype == object:
            cells = entries(frame[name])
            if _axes(next((cell for cell in cells if not _is_empty(cell)), None)) in (1, 2):
                found[name] = list(cells)
    return found


def _names(frame: Any) -> list[Any]:
    """Return the names of the columns of a frame."""
    return list(frame.column_names if hasattr(type(frame), "column_names") else frame.columns)


def _clouds(name: str, cells: list[Any]) -> PointClouds:
    for row, cell in enumerate(cells):
        if _axes(cell) not in (1, 2):
            raise ValueError(
                f"Column {name!r}: expected a bag, an array of shape (n,) or (n, d), in each row, got "
                f"{_described(cell)} in row {row} (counted from 0)."
            )
    try:
        return PointClouds.from_list([_double(cell, i) for i, cell in enumerate(cells)])
    except (TypeError, ValueError) as error:
        raise type(error)(f"Column {name!r}: {error}") from error


def _double(cell: Any, number: int) -> Tensor:
    """Convert a bag to double precision."""
    if isinstance(cell, np.ndarray) and cell.dtype == object:
        cell = [np.asarray(row) for row in cell]  # nested lists, as Parquet files hold them
    bag = real_array(cell, f"Bag {number}")
    device = bag.device if isinstance(bag, Tensor) else torch.device("cpu")
    return to_tensor(bag, torch.float64, device)


def _axes(cell: Any) -> int:
    """Return the number of axes of a cell; nested lists are counted by their first entries."""
    if isinstance(cell, list | tuple):
        return 1 + (_axes(cell[0]) if len(cell) else 0)
    if isinstance(cell, np.ndarray) and cell.dtype == object:
        return cell.ndim + (_axes(cell.flat[0]) if cell.size else 0)
    return cell.ndim if isinstance(cell, np.ndarray | Tensor) else 0


def _is_empty(cell: Any) -> bool:
    return not isinstance(cell, list | tuple | np.ndarray | Tensor) and bool(is_missing(cell))


def _described(cell: Any) -> str:
    return "a missing value" if _is_empty(cell) else f"a {type(cell).__name__}"
