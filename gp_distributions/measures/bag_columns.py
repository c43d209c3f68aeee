"""Data frames that hold bags in the cells of some columns, beside columns of numbers and categories."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from gp_distributions.measures.arrays import is_missing
from gp_distributions.measures.bags import count_axes, double
from gp_distributions.measures.names import Names, Naming, index_names
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.measures.tables import check_texts, column, column_names, opened

# Blocks by name, and the names of the rows.
Split: TypeAlias = tuple[dict[str, Any], Names | None]


def split_mixed(frame: Any) -> Split | None:
    """Split a frame with several columns of which some hold bags; return None for other frames.

    Raises:
        TypeError: If bags are sparse.
        ValueError: As for :func:`split_frame`.
    """
    names = column_names(frame)
    # Columns of a matrix may share a name in some versions of scikit-learn.
    if not len(set(names)) == len(names) > 1:
        return None
    read: Any = opened(frame, [])
    bags = _bags(read)
    return _split(read, bags, "covariates") if bags else None


def split_frame(data: Any, covariates: str) -> Split:
    """Split a frame into blocks: clouds for each column of bags, and a frame of the other columns.

    Args:
        data: A data frame.
        covariates: Name of the block of the other columns.

    Raises:
        TypeError: If ``data`` is not a data frame, or bags are sparse.
        ValueError: If the name is that of a column of bags, or a bag is invalid.
    """
    frame: Any = opened(data.collect() if hasattr(type(data), "collect") else data, [])
    return _split(frame, _bags(frame), covariates)


def _split(frame: Any, bags: dict[Any, list[Any]], covariates: str) -> Split:
    """Return the blocks of an opened frame, given the cells of its columns of bags."""
    check_texts(bags)
    if covariates in map(str, bags):
        raise ValueError(
            f"Expected a name of the block of covariates that is not a column of bags, got "
            f"{covariates!r}. Pass another one as covariates=."
        )
    names = index_names(frame)
    # Integers that may count rows do not name the clouds.
    named = names is not None and names.naming > Naming.COUNTED
    blocks: dict[str, Any] = {}
    for name, cells in bags.items():
        clouds = _clouds(name, cells)
        labels = names.values.copy() if names is not None and named else None
        blocks[str(name)] = PointClouds._unchecked(clouds.points, clouds.weights, labels=labels)
    others = [name for name in column_names(frame) if name not in bags]
    if others:
        arrow = hasattr(type(frame), "column_names")
        blocks[covariates] = frame.select(others) if arrow else frame[others]
    return blocks, names


def _bags(frame: Any) -> dict[str, list[Any]]:
    """Return the cells of the columns of bags in an opened frame, by the name of the column.

    A column holds bags if its first value is an array, a list, a tuple or a tensor with one or two axes.

    Raises:
        ValueError: If a column has no rows, and may hold bags.
    """
    found = {}
    for name in column_names(frame):
        dtype = getattr(frame[name], "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind != "O":
            continue  # wide frames of numbers
        values = column(frame, name)
        if values.ndim > 1:  # cells of equal lengths
            found[name] = list(values)
        elif values.dtype == object:
            cells = list(values)
            if not cells:
                raise ValueError(
                    f"Column {name!r}: expected at least one row, which shows whether there are bags in "
                    "the column, got an empty frame."
                )
            if count_axes(next((cell for cell in cells if not _is_empty(cell)), None)) in (1, 2):
                found[name] = cells
    return found


def _clouds(name: str, cells: list[Any]) -> PointClouds:
    for row, cell in enumerate(cells):
        if count_axes(cell) not in (1, 2):
            raise ValueError(
                f"Column {name!r}: expected a bag, an array of shape (n,) or (n, d), in each row, got "
                f"{_described(cell)} in row {row} (counted from 0)."
            )
    try:
        return PointClouds.from_list([double(cell, f"Bag {i}") for i, cell in enumerate(cells)])
    except (TypeError, ValueError) as error:
        raise type(error)(f"Column {name!r}: {error}") from error


def _is_empty(cell: Any) -> bool:
    return not count_axes(cell) and is_missing(cell)


def _described(cell: Any) -> str:
    return "a missing value" if _is_empty(cell) else f"a {type(cell).__name__}"
