"""Whether atoms, in their order, are the vertices of an outline."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FEWEST = 8  # the closed line through fewer random points is often simple
_MOST = 1000  # each edge is compared with all others


def is_outline(points: NDArray[np.float64]) -> bool:
    """Whether the closed line through points in the plane, in their order, does not cross itself.

    Edges that only touch do not cross. Fewer than eight points do not count as an outline, since every
    order of three points, and many an order of few more, gives such a line. More points in random order
    rarely do. Of more than 1000 points, so many at equal steps are looked at.

    Args:
        points: The points, an ``n x 2`` array.
    """
    if len(points) < _FEWEST:
        return False
    points = points[:: -(-len(points) // _MOST)]
    ends = np.roll(points, -1, axis=0)
    for i in range(len(points) - 2):
        start, end, others, other_ends = points[i], ends[i], points[i + 2 :], ends[i + 2 :]
        apart = _side(start, end, others) * _side(start, end, other_ends) < 0
        if (apart & (_side(others, other_ends, start) * _side(others, other_ends, end) < 0)).any():
            return False
    return True


def _side(
    start: NDArray[np.float64], end: NDArray[np.float64], point: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the side of the line from ``start`` to ``end`` on which a point lies: 1, -1, or 0 on it."""
    along, to = end - start, point - start
    return np.sign(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])
