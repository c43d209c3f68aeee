"""Median distances between points or clouds, some of which may coincide."""

from __future__ import annotations

import torch
from torch import Tensor

# Two points or clouds coincide if their computed distance is at most this many rounding errors of
# the largest distance.
COINCIDENT = 100


def apart(distances: Tensor, *, rounding: Tensor | float = 0.0) -> Tensor:
    """Return a mask of the distances, or squared distances, that exceed rounding of the largest one.

    Args:
        distances: A non-empty tensor of distances.
        rounding: Rounding error of each distance, whatever the largest one is.
    """
    relative = COINCIDENT * torch.finfo(distances.dtype).eps * distances.max()
    return (distances > relative) & (distances > rounding)


def median_apart(distances: Tensor, *, rounding: Tensor | float = 0.0) -> Tensor:
    """Median of the distances, or squared distances, between points or clouds that do not coincide.

    Args:
        distances: A non-empty tensor, which may hold each pair twice, as a symmetric matrix does.
        rounding: Rounding error of each distance, whatever the largest one is.

    Returns:
        The median as a scalar tensor: the lower of the two middle values if the number of distances is
        even, and NaN if all points or clouds coincide.
    """
    return distances[apart(distances, rounding=rounding)].median()
