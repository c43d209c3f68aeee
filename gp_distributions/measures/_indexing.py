"""Indices into the last batch axis, as accepted by torch and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Index: TypeAlias = int | slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any] | Tensor


def resolve(index: Index, length: int) -> slice | Tensor:
    """Convert an index to a slice with a positive step or a tensor of integers.

    Args:
        index: An integer, a slice, a mask, or a list, array or tensor of integers.
        length: Length of the axis.

    Returns:
        The equivalent slice or tensor of integers.

    Raises:
        IndexError: If the index is out of range, or is a mask of another length.
        TypeError: If the index is of a type not listed above.
    """
    if isinstance(index, slice):
        backward = index.step is not None and index.step < 0
        return torch.from_numpy(np.arange(length)[index].copy()) if backward else index
    if isinstance(index, tuple):
        raise TypeError(f"Expected one index, into the last batch axis, got the tuple {index}.")
    if not isinstance(index, Tensor):
        index = np.array(index)
        if index.dtype.kind not in "biuf":
            raise TypeError(
                f"Expected integers or a mask as index, got {index.tolist()!r}. Select clouds by label "
                "with clouds[numpy.isin(clouds.labels, names)]."
            )
    key = index if isinstance(index, Tensor) else torch.from_numpy(index)
    if key.dtype == torch.bool:
        if key.shape != (length,):
            raise IndexError(f"Expected a mask of length {length}, got shape {tuple(key.shape)}.")
        return key.nonzero().squeeze(-1)
    if key.numel() == 0:
        return key.to(torch.int64)
    if key.is_floating_point() or key.is_complex():
        raise TypeError(f"Expected integers or a mask as index, got dtype {key.dtype}.")
    if key.min() < -length or key.max() >= length:
        raise IndexError(f"Index {index} is out of range for length {length}.")
    return key.to(torch.int64)
