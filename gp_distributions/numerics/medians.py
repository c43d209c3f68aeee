"""Median distances between points or clouds, some of which may coincide."""

from __future__ import annotations

import torch
from torch import Tensor

# Two points or clouds coincide if their computed distance is at most this many rounding errors of
# the largest distance.
_COINCIDENT = 100


def apart(distances: Tensor) -> Tensor:
    """Return a mask of the distances, or squared distances, that exceed rounding of the largest one."""
    return distances > _COINCIDENT * torch.finfo(distances.dtype).eps * distances.max()


def median_apart(distances: Tensor) -> Tensor:
    """Median of the distances, or squared distances, between points or clouds that do not coincide.

    Args:
        distances: A non-empty tensor, which may hold each pair twice, as a symmetric matrix does.

    Returns:
        The median as a scalar tensor: the lower of the two middle values if the number of distances is
        even, and NaN if all points or clouds coincide.
    """
    return distances[apart(distances)].median()
