"""Clouds of one size, given as arrays or as rows."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.measures._validation import Naming, equal_weights, validated
from gp_distributions.measures.arrays import (
    Data,
    common_device,
    common_dtype,
    integer,
    point_array,
    real_array,
    to_tensor,
)
from gp_distributions.rows.clouds import split_rows


def read_arrays(points: Data, weights: Data | None) -> tuple[Tensor, Tensor]:
    """Read clouds from an array of atoms and one of weights.

    Args:
        points: A ``batch_shape x n x d`` array.
        weights: A ``batch_shape x n`` array; None: equal weights.

    Returns:
        A ``batch_shape x n x d`` tensor of points and a ``batch_shape x n`` tensor of normalised
        weights.
    """
    arrays = [point_array(points, "Points", "(..., n, d)")]
    if weights is not None:
        arrays.append(real_array(weights, "Weights"))
        if arrays[1].shape != arrays[0].shape[:-1]:
            raise ValueError(
                f"Weights: expected shape {tuple(arrays[0].shape[:-1])}, one for each atom, got "
                f"{tuple(arrays[1].shape)}."
            )
    dtype, device = common_dtype(arrays), common_device(arrays)
    atoms, *given = (to_tensor(array, dtype, device) for array in arrays)
    return validated(atoms, given[0] if given else equal_weights(atoms), Naming())


def read_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor]:
    """Read clouds from ``batch_shape x m*(d+1)`` rows, as :func:`read_arrays` returns them."""
    array = real_array(rows, "Rows")
    if 0 in array.shape[:-1]:
        raise ValueError(f"Rows: expected at least one row, got shape {tuple(array.shape)}.")
    values = to_tensor(array, common_dtype([array]), common_device([array]))
    return validated(*split_rows(values, integer(dim, "dim")), Naming())
