"""Operations in a single thread on the CPU, for small chunks of work without gradients.

PyTorch's threads keep spinning between operations. On few cores, this slows other work down by more
than a second thread saves in a small operation. These functions therefore call NumPy, and fall back to
PyTorch if a gradient is required or a tensor is on another device.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product ``left @ right``."""
    if _by_torch(left, right):
        return left @ right
    return torch.from_numpy(np.matmul(left.detach().numpy(), right.detach().numpy()))


def concatenate(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate two tensors along their last axis."""
    if _by_torch(left, right):
        return torch.cat([left, right], dim=-1)
    joined = np.concatenate([left.detach().numpy(), right.detach().numpy()], axis=-1)
    return torch.from_numpy(joined)


def put_rows(out: Tensor, index: slice | Tensor, rows: Tensor) -> None:
    """Write rows into ``out``, which must not require a gradient."""
    if _by_torch(out, rows):
        out[index] = rows
    else:
        key = index if isinstance(index, slice) else index.numpy()
        out.numpy()[key] = rows.detach().numpy()


def _by_torch(*tensors: Tensor) -> bool:
    return any(
        t.device.type != "cpu" or (t.requires_grad and torch.is_grad_enabled()) for t in tensors
    )
