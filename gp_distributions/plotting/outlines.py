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
    x, y = points.T
    dx, dy = np.roll(points, -1, axis=0).T - points.T
    # The side of the line through each edge on which each point lies: 1, -1, or 0 on it.
    side = np.sign(dx[:, None] * (y - y[:, None]) - dy[:, None] * (x - x[:, None]))
    apart = side * np.roll(side, -1, axis=1) < 0
    return not (apart & apart.T).any()
