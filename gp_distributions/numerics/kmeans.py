"""k-means clustering of atoms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import vq
from scipy.spatial.distance import cdist


def kmeans(
    atoms: NDArray[np.float64], count: int, rng: np.random.Generator, *, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Cluster atoms by k-means from a k-means++ start.

    The result equals that of ``scipy.cluster.vq.kmeans2``, but without its warning about empty
    clusters, which keep their centres.

    Args:
        atoms: An ``M x d`` array.
        count: Number of clusters. There are fewer if fewer atoms are distinct.
        rng: Random number generator for the start.
        steps: Number of steps of k-means, at least one.

    Returns:
        The ``K x d`` centres, and for each centre the number of atoms nearest to it, which may be zero.
    """
    chosen = [int(rng.integers(len(atoms)))]
    squares = cdist(atoms[chosen], atoms, "sqeuclidean")[0]
    while len(chosen) < count and squares.any():
        chosen.append(int(rng.choice(len(atoms), p=squares / squares.sum())))
        squares = np.minimum(squares, cdist(atoms[chosen[-1:]], atoms, "sqeuclidean")[0])
    centres = atoms[chosen]
    for _ in range(steps):
        nearest, _ = vq(atoms, centres)
        sizes = np.bincount(nearest, minlength=len(centres))
        sums = [np.bincount(nearest, column, len(centres)) for column in atoms.T]
        means = np.stack(sums, axis=-1) / np.maximum(sizes, 1)[:, None]
        centres = np.where(sizes[:, None] > 0, means, centres)
    return centres, sizes
