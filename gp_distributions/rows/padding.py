"""Padding that takes no memory: zeros that are never written.

Rows of bags of very different sizes are mostly zeros behind the last atom. The operating system maps a
page of memory when it is first written, so arrays that it provides as zeros take memory only where a
function writes to them. Reading zeros does not count. These functions write up to the last entry that
is not zero.
"""

from __future__ import annotations

import math
import mmap

import numpy as np
import torch
from torch import Tensor

# Rows of at least this many entries are treated one by one; shorter ones take little memory.
_WIDE = 2**14
# Number of bytes from which zeros come from the operating system.
_LARGE = 2**22


def untouched_zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return zeros, with the dtype and device of ``like``, that take memory when they are written."""
    dtype = like.detach()[..., :0].cpu().numpy().dtype
    size = math.prod(shape) * dtype.itemsize
    if like.device.type != "cpu" or size < _LARGE or not hasattr(mmap, "MAP_PRIVATE"):
        return like.new_zeros(shape)
    # PyTorch writes its zeros, and NumPy requests huge pages, of which each row would take one.
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.from_numpy(np.frombuffer(pages, dtype=dtype)).view(shape)


def is_wide(rows: Tensor) -> bool:
    """Whether rows, the last axis of a tensor, are so long that their padding should not be written."""
    return (
        rows.dim() > 1
        and rows.shape[-1] >= _WIDE
        and rows.device.type == "cpu"
        and not (rows.requires_grad and torch.is_grad_enabled())
    )


def copy_filled(source: Tensor, target: Tensor, *, axes: int = 1) -> None:
    """Copy each row into zeros, up to its last entry that is not zero.

    Args:
        source: A ``batch_shape x n`` tensor, or ``batch_shape x n x d`` if ``axes`` is 2.
        target: Zeros in the same shape, which are changed.
        axes: Number of axes that a row takes.
    """
    ends = -axes - 1
    for row, place in zip(source.flatten(0, ends), target.flatten(0, ends), strict=True):
        size = filled(row)
        place[:size] = row[:size]


def filled(row: Tensor) -> int:
    """Return the length of a row, ``n`` or ``n x d``, without the zeros at its end."""
    used = row != 0
    used = used.any(-1) if used.dim() > 1 else used
    where = used.nonzero()
    return int(where[-1]) + 1 if len(where) else 0


def cloned(rows: Tensor) -> Tensor:
    """Return a copy of ``batch_shape x width`` rows, in which padding takes no memory."""
    if not is_wide(rows):
        return rows.clone()
    copy = untouched_zeros(tuple(rows.shape), rows)
    copy_filled(rows, copy)
    return copy
