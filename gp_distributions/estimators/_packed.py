"""Packed rows of clouds among the 2-D arrays that scikit-learn passes to estimators."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Largest error of weights that were normalised in single precision.
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def refuse_packed_rows(array: NDArray[np.float64]) -> None:
    """Raise if the leading columns of a 2-D array look like packed rows of clouds.

    They do if, for some dimension ``d`` up to 10, every ``(d + 1)``-th of them is a weight: no weight is
    negative, they sum to one in every row, and some row has at least two positive ones. One-hot codes
    and integers never look like that. If coordinates sum to one as well, as in complementary features,
    it is a property of the data.

    Raises:
        ValueError: If they do.
    """
    for dim in range(1, 11):
        sums_to_one = _sums_to_one(array[:, dim :: dim + 1].cumsum(1))
        if not sums_to_one.any():
            continue
        atoms = int(sums_to_one.argmax()) + 1
        width = atoms * (dim + 1)
        clouds = array[:, :width].reshape(-1, atoms, dim + 1)
        weights = clouds[..., dim]
        several = ((weights > 0).sum(1) > 1).any()
        if several and (weights >= 0).all() and not _sums_to_one(clouds.sum(1))[:dim].any():
            raise ValueError(
                f"Expected distributions, got an array of shape {array.shape} that looks like packed "
                f"rows: in its first {width} columns, the weights of {atoms} atoms of dimension {dim} "
                f"sum to one in every row. Read such rows with PointClouds.unpack(X[:, :{width}], "
                f"dim={dim}), or give a Gaussian process a kernel= with active_dims. If each row is a "
                "single point, give PointClouds(X[:, None, :])."
            )


def _sums_to_one(sums: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which columns of sums are one in every row."""
    return np.all(np.abs(sums - 1) <= _ROUNDING, axis=0)
