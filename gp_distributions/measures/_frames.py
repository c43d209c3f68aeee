"""Long tables, with one row for each atom and a column that names the bag of the atom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._bags import pad
from gp_distributions.measures._validation import Wording, validated
from gp_distributions.measures.arrays import as_floats, is_missing, shown, to_tensors
from gp_distributions.measures.tables import Table, column, row_names, table


def read_frame(
    frame: Any, bag: str, columns: str | Sequence[str], weight: str | None
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group the rows of a frame by bag, keeping their order within each bag.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the names of the
        bags in order of first appearance.

    Raises:
        TypeError: If ``frame`` is not a data frame.
        ValueError: If a column does not exist or has the wrong content.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("Expected at least one column of coordinates, got none.")
    given = names if weight is None else [*names, weight]
    read = table(frame, [bag, *given])
    ids = np.asarray(column(read, bag))
    if not len(ids):
        raise ValueError("Expected a frame with at least one row, got an empty frame.")
    values = to_tensors([_numbers(read, name, ids) for name in given])
    points = torch.stack(values[: len(names)], -1)
    weights = torch.ones_like(values[0]) if weight is None else values[-1]
    return split_rows_by_bag(points, weights, ids, bag)


def split_rows_by_bag(
    points: Tensor, weights: Tensor, ids: npt.NDArray[Any], bag: str, noun: str = "Bag"
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group atoms by bag, keeping their order within each bag.

    Args:
        points: An ``N x d`` tensor of atoms.
        weights: ``N`` weights.
        ids: The bag of each atom.
        bag: Name of the column of bags, for error messages.
        noun: What a bag is called in error messages.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the names of the
        bags in order of first appearance.

    Raises:
        ValueError: If the bag of an atom is missing or unhashable, or atoms or weights are invalid.
    """
    keys = ids.tolist()
    try:
        codes = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    except TypeError as error:
        raise ValueError(
            f"Column {bag!r}: expected values that name bags, such as strings or numbers, got "
            f"an {error}."
        ) from error
    if any(map(is_missing, codes)):
        row = next(row for row, key in enumerate(keys) if is_missing(key))
        raise ValueError(
            f"Column {bag!r}: expected a bag for each row, got a missing value in row {row} (counted "
            "from 0)."
        )
    code = np.fromiter(map(codes.__getitem__, keys), dtype=np.intp, count=len(keys))
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    labels = ids[order[np.cumsum(counts) - counts]]
    sizes = torch.from_numpy(counts)
    padded = pad(points[order], sizes), pad(weights[order], sizes)
    return *validated(*padded, Wording(noun, labels=labels)), labels


def _numbers(frame: Table, name: str, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of finite numbers; the error names the row and the bag."""
    values = np.asarray(column(frame, name))
    numbers = as_floats(values)
    plain = numbers.dtype.kind in "biuf"
    bad = ~np.isfinite(numbers) if plain else np.array([not _is_number(v) for v in values])
    if plain and not bad.any():
        return numbers
    row = int(bad.argmax())
    raise ValueError(
        f"Column {name!r}: expected finite numbers, got {shown(values.tolist()[row])} in row "
        f"{row_names(frame).tolist()[row]!r}, of bag {ids.tolist()[row]!r}. Convert text to numbers; "
        "correct or fill in the value, or drop the row."
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
