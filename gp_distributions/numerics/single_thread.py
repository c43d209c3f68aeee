"""Operations in one thread on a CPU, for work in small chunks that has no gradient.

Between its operations torch's threads spin, which on few cores takes more from what runs beside them
than a second thread gives to a small operation. With a gradient, or on other devices, torch does all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product ``left @ right``."""
    if _by_torch(left, right):
        return left @ right
    return torch.from_numpy(np.matmul(left.detach().numpy(), right.detach().numpy()))


def concatenate(left: Tensor, right: Tensor) -> Tensor:
    """Join two tensors along their last axis."""
    if _by_torch(left, right):
        return torch.cat([left, right], dim=-1)
    joined = np.concatenate([left.detach().numpy(), right.detach().numpy()], axis=-1)
    return torch.from_numpy(joined)


def put_rows(out: Tensor, index: slice | Tensor, rows: Tensor) -> None:
    """Write some rows of ``out``, which has no gradient."""
    if _by_torch(out, rows):
        out[index] = rows
    else:
        key = index if isinstance(index, slice) else index.numpy()
        out.numpy()[key] = rows.detach().numpy()


def _by_torch(*tensors: Tensor) -> bool:
    return any(
        t.device.type != "cpu" or (t.requires_grad and torch.is_grad_enabled()) for t in tensors
    )
