"""Tensors of rows: whether their content can be read, and padding that takes no memory.

Rows of bags of very different sizes are mostly zeros behind the last atom. The operating system maps a
page of memory when it is first written, so arrays that it provides as zeros take memory only where a
function writes to them. Reading zeros does not count. These functions write up to the last entry that
is not zero.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def check_content(values: Tensor) -> None:
    """Check that rows are a tensor whose content can be read.

    Raises:
        TypeError: If they are something else, such as distributions or a sparse tensor, or are within
            a transform of ``torch.func``, which hides their content.
    """
    if not isinstance(values, Tensor):
        raise TypeError(
            f"Expected rows as a tensor, got {type(values).__name__}. Pass X.pack(), or call "
            "posterior(X) or predict(X)."
        )
    if values.layout != torch.strided:
        raise TypeError(
            f"Expected rows as a dense tensor, got layout {values.layout}. Pass rows.to_dense()."
        )
    try:
        values.data_ptr()
    except RuntimeError as error:  # of a wrapper
        raise TypeError(
            "Clouds, distances and models look at the content of rows, which the transforms of "
            "torch.func (vmap, grad) do not allow. Pass all rows at once, as a tensor with batch axes, "
            "and differentiate with torch.autograd."
        ) from error


def is_tracked(*tensors: Tensor) -> bool:
    """Whether autograd records what is computed from tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


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


def is_wide(rows: Tensor, width: int | None = None) -> bool:
    """Whether rows are so long that their padding should not be written.

    Args:
        rows: A tensor whose last axis is a row.
        width: Length of the rows. Default: their length in the tensor.
    """
    return (
        rows.dim() > 1
        and (rows.shape[-1] if width is None else width) >= _WIDE
        and rows.device.type == "cpu"
        and not is_tracked(rows)
    )


def copy_filled(
    source: Tensor, target: Tensor, *, axes: int = 1, factors: Tensor | None = None
) -> None:
    """Copy each row into zeros, up to its last entry that is not zero.

    Args:
        source: A ``batch_shape x n`` tensor, ``batch_shape x n x d`` if ``axes`` is 2, and so on.
        target: Zeros in the same shape, which are changed.
        axes: Number of axes that a row takes.
        factors: Factors by which to multiply the entries, which broadcast with a row.
    """
    ends = -axes - 1
    for row, place in zip(source.flatten(0, ends), target.flatten(0, ends), strict=True):
        size = filled(row)
        place[:size] = row[:size] if factors is None else row[:size] * factors


def filled(row: Tensor) -> int:
    """Return the length of a row, ``n`` or ``n x ...``, without the zeros at its end."""
    used = row != 0
    used = used.flatten(1).any(-1) if used.dim() > 1 else used
    where = used.nonzero()
    return int(where[-1]) + 1 if len(where) else 0


def resized(rows: Tensor, width: int) -> Tensor:
    """Append zeros to ``batch_shape x n`` rows, or cut them, to ``batch_shape x width``."""
    if not is_wide(rows, width):
        return torch.nn.functional.pad(rows, (0, width - rows.shape[-1]))
    wider = untouched_zeros((*rows.shape[:-1], width), rows)
    size = min(width, rows.shape[-1])
    copy_filled(rows[..., :size], wider[..., :size])
    return wider


def at(source: Tensor, index: list[int]) -> Tensor:
    """Return the entries of the first axis, each ``n x ...``, at a list of integers."""
    target = untouched_zeros((len(index), *source.shape[1:]), source)
    for place, i in zip(target, index, strict=True):
        size = filled(source[i])
        place[:size] = source[i, :size]
    return target


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors ``N x n x ...`` that differ in ``N`` and ``n``, or ``N``.

    The second axis is padded with zeros.
    """
    if parts[0].dim() == 1:
        return torch.cat([*parts])
    size = max(part.shape[1] for part in parts)
    behind = [0, 0] * (parts[0].dim() - 2)
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, [*behind, 0, size - part.shape[1]]) for part in parts])
