"""A check that recognises packed rows of clouds in the 2-D arrays that estimators receive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Largest error of the sum of weights that were normalised in single precision.
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def refuse_packed_rows(array: NDArray[np.float64]) -> None:
    """Refuse a 2-D array whose leading columns look like packed rows of clouds.

    The columns look like packed rows if, for some dimension ``d`` up to 10, every ``(d + 1)``-th column
    could hold weights: none of its values is negative, these values sum to one in every row, and some
    row has at least two positive values. One-hot codes and integers never meet this condition. An array
    is not refused if its coordinates sum to one as well, as in complementary features, because the sums
    are then a property of the data.

    Raises:
        ValueError: If the leading columns look like packed rows.
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
    """Return a boolean for each column: whether it equals one, up to rounding, in every row."""
    return np.all(np.abs(sums - 1) <= _ROUNDING, axis=0)
