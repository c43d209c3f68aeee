"""Lists, dictionaries and columns of data frames that hold one bag in each entry."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gp_distributions.measures.tables import is_table


def entries(column: Any) -> Any:
    """Return the entries of a pandas, Polars or PyArrow column as a list; return others unchanged."""
    for method in ("to_pylist", "to_list"):
        if callable(getattr(type(column), method, None)):
            return getattr(column, method)()
    return column


def listed(items: Any, noun: str) -> tuple[list[Any], npt.NDArray[Any] | None]:
    """Return items as a list, and their labels: the keys of a dictionary, or None.

    Args:
        items: An iterable of items, or a dictionary whose keys are their labels.
        noun: What an item is called in error messages.

    Raises:
        TypeError: If the items cannot be iterated over, are a table, or are the path of one file.
    """
    if isinstance(items, Mapping):
        return list(map(_plain, items.values())), object_array(list(map(_plain, items)))
    items = entries(items)
    if is_table(items) or hasattr(items, "get_group"):
        raise TypeError(
            f"Expected a list or dictionary with an entry for each {noun}, got "
            f"{type(items).__name__}. Read a long table with PointClouds.from_frame(frame, bag=..., "
            f"columns=[...]), and pass a column that holds a {noun} in each row as frame[name]."
        )
    try:
        # Kernels have an entry for every index, so that a list of them would never end.
        if isinstance(items, str | torch.nn.Module):
            raise TypeError("Paths and modules are not lists.")
        return list(items), None
    except TypeError as error:
        advice = f"Pass a single {noun} in a list, [{noun}]."
        if noun == "mesh" and isinstance(items, str | PathLike) and not Path(items).suffix:
            advice += f" Pass the files of a folder as sorted(Path({str(items)!r}).glob('*.stl'))."
        raise TypeError(
            f"Expected a list or dictionary with an entry for each {noun}, got "
            f"{type(items).__name__}. {advice}"
        ) from error


def _plain(value: Any) -> Any:
    """Return scalars of PyArrow, such as the bags in a column of lists, as Python values."""
    return value.as_py() if callable(getattr(type(value), "as_py", None)) else value


def matched(weights: Any, labels: npt.NDArray[Any] | None) -> Any:
    """Return a dictionary of weights as a list in the order of the labels, and other weights unchanged.

    Raises:
        ValueError: If a dictionary of weights does not have the labels as its keys.
    """
    if not isinstance(weights, Mapping):
        return weights
    keys = [] if labels is None else labels.tolist()
    if set(keys) != set(weights):
        raise ValueError(
            "Expected weights with the same keys as the bags, got weights with keys "
            f"{list(weights)[:5]} and "
            + ("bags without keys." if labels is None else f"bags with keys {keys[:5]}.")
        )
    return [weights[key] for key in keys]


def object_array(values: list[Any]) -> npt.NDArray[Any]:
    """Return a one-dimensional array of objects, even if the objects are sequences themselves."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
