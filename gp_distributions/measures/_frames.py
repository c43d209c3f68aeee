"""Long tables, with one row for each atom and a column that names the bag of the atom."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._bags import pad
from gp_distributions.measures._validation import Wording, validated
from gp_distributions.measures.arrays import common_dtype, is_missing, real_array, shown, to_tensor
from gp_distributions.measures.tables import Frame, column, opened


def read_frame(
    frame: Frame, bag: str, columns: str | Sequence[str], weight: str | None
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group the rows of a frame by bag, keeping their order within each bag.

    Args:
        frame: A data frame with one row for each atom.
        bag: Name of the column that identifies the bag of each row.
        columns: Name or names of the columns of coordinates.
        weight: Name of the column of weights; None for equal weights.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the ``B``
        bags in order of first appearance.

    Raises:
        ValueError: If the frame has no rows, a column is missing or not numeric, or the bag of a row
            is missing.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("Expected at least one column of coordinates, got none.")
    frame = opened(frame, [bag, *names, *([] if weight is None else [weight])])
    ids = column(frame, bag)
    if not len(ids):
        raise ValueError("Expected a frame with at least one row, got an empty frame.")
    values = [_numbers(frame, name) for name in names]
    values.append(np.ones_like(values[0]) if weight is None else _numbers(frame, weight))
    _check_finite(values, [*names, weight], frame, ids)
    table = to_tensor(np.stack(values, axis=-1), common_dtype(values), torch.device("cpu"))
    return split_rows_by_bag(table[:, :-1], table[:, -1], ids, bag)


def split_rows_by_bag(
    points: Tensor, weights: Tensor, ids: npt.NDArray[Any], bag: str, noun: str = "Bag"
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group atoms by bag, keeping their order within each bag.

    Args:
        points: An ``N x d`` tensor of the atoms of all bags.
        weights: The ``N`` weights of these atoms.
        ids: An array of the ``N`` bags that the atoms belong to.
        bag: Name of the column that holds ``ids``, for error messages.
        noun: What a bag is called in error messages.

    Returns:
        Points, weights and bags, as :func:`read_frame` returns them.
    """
    order, counts, labels = _group(ids, bag)
    sizes = torch.from_numpy(counts)
    points, weights = pad(points[order], sizes), pad(weights[order], sizes)
    return *validated(points, weights, Wording(noun, labels=labels)), labels


def _numbers(frame: Frame, name: str) -> npt.NDArray[Any]:
    values = column(frame, name)
    if values.dtype == object and all(isinstance(v, Decimal | float | int) for v in values):
        values = values.astype(np.float64)  # databases return ``Decimal`` objects
    if values.dtype.kind not in "OUST":  # NumPy's kinds of arrays that hold text or objects
        return np.asarray(real_array(values, f"Column {name!r}"))
    if any(isinstance(value, list | np.ndarray) for value in values[:1]):
        raise ValueError(
            f"Column {name!r}: expected a number in each row, got a bag, {shown(values[0])}. Read "
            f"columns of bags with PointClouds.from_list(dict(zip(frame[bag], frame[{name!r}])))."
        )
    # The error names the first entry that is not a number.
    row = next((row for row, value in enumerate(values) if not _is_number(value)), None)
    remedy = "Replace it with a number or drop the row."
    if row is None:
        row, remedy = 0, "Convert the column to floating-point numbers."
        if hasattr(frame[name], "astype"):
            remedy = f"Convert the column with frame[{name!r}].astype(float)."
    raise ValueError(
        f"Column {name!r}: expected real numbers, got {shown(values[row])} in row "
        f"{_row(frame, row)!r}. {remedy}"
    )


def _check_finite(
    values: list[npt.NDArray[Any]],
    names: list[Any],
    frame: Frame,
    ids: npt.NDArray[Any],
) -> None:
    """Check that no value is missing or infinite; the error names the row and the bag."""
    for array, name in zip(values, names, strict=True):
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            row = int(bad[0])
            raise ValueError(
                f"Column {name!r}: expected finite numbers, got {array[row]} in row "
                f"{_row(frame, row)!r}, of bag {ids.tolist()[row]!r}. Fill in the value or drop the row."
            )


def _row(frame: Any, row: int) -> Any:
    """Return the name of a row, for error messages: its number, or its entry in a pandas index."""
    return next(iter(frame.index[row : row + 1])) if hasattr(frame, "index") else row


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _group(
    ids: npt.NDArray[Any], bag: str
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[Any]]:
    # A dictionary keeps the order of first appearance and, unlike sorting, allows mixed types.
    keys = ids.tolist()
    try:
        codes = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    except TypeError as error:
        raise ValueError(
            f"Column {bag!r}: expected values that name bags, such as strings or numbers, got an "
            f"{error}."
        ) from error
    code = np.fromiter(map(codes.__getitem__, keys), dtype=np.intp, count=len(keys))
    order = np.argsort(code, kind="stable")
    sizes = np.bincount(code)
    first = order[np.cumsum(sizes) - sizes]
    missing = np.fromiter(map(is_missing, codes), dtype=bool, count=len(codes))
    if missing.any():
        raise ValueError(
            f"Column {bag!r}: expected a bag for each row, got a missing value in row "
            f"{first[missing].min()} (counted from 0)."
        )
    return order, sizes, ids[first]
