"""Medians of distances between things of which some may coincide."""

from __future__ import annotations

import torch
from torch import Tensor

# Things coincide if their distance, as it was computed, is at most this many rounding errors of the
# largest one.
_COINCIDENT = 100


def apart(distances: Tensor) -> Tensor:
    """Which distances, or squared distances, are larger than rounding errors of the largest one."""
    return distances > _COINCIDENT * torch.finfo(distances.dtype).eps * distances.max()


def median_apart(distances: Tensor) -> Tensor:
    """Median of the distances, or squared distances, of things that do not coincide.

    Args:
        distances: A non-empty tensor, which may hold each pair twice, as a symmetric matrix does.

    Returns:
        A scalar: the lower of two medians, or NaN if all things coincide.
    """
    return distances[apart(distances)].median()
