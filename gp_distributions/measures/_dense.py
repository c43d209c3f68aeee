"""Reading clouds of equal size from arrays and from rows."""

from __future__ import annotations

from torch import Tensor

from gp_distributions.measures._validation import Naming, equal_weights, validated
from gp_distributions.measures.arrays import (
    Data,
    integer,
    point_array,
    real_array,
    row_tensor,
    to_tensors,
)
from gp_distributions.rows.clouds import split_rows


def read_arrays(points: Data, weights: Data | None) -> tuple[Tensor, Tensor]:
    """Read clouds from an array of atoms and one of weights.

    Args:
        points: A ``batch_shape x n x d`` array.
        weights: A ``batch_shape x n`` array; None for equal weights.

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
    atoms, *given = to_tensors(arrays)
    return validated(atoms, given[0] if given else equal_weights(atoms), Naming())


def read_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor]:
    """Read clouds from ``batch_shape x m*(d+1)`` rows; returns what :func:`read_arrays` returns."""
    return validated(*split_rows(row_tensor(rows), integer(dim, "dim")), Naming())
