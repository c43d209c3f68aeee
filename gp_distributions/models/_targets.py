"""Targets as a model is given them, as tensors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


def as_targets(train_Y: Tensor | ArrayLike, rows: Tensor) -> tuple[Tensor, bool]:
    """Targets as ``batch_shape x T x outputs``, and whether that added the last axis.

    Raises:
        ValueError: If their number is another than that of rows, or one is no finite number.
    """
    if not isinstance(train_Y, Tensor):
        train_Y = np.array(train_Y)  # a copy: columns of data frames are read-only
        if train_Y.dtype.kind not in "biuf":
            raise ValueError(
                f"Expected numbers as targets, got an array of {train_Y.dtype}. ClassificationGP takes "
                "labels."
            )
    targets = torch.as_tensor(train_Y, dtype=rows.dtype, device=rows.device)
    squeeze = targets.dim() == rows.dim() - 1
    targets = targets.unsqueeze(-1) if squeeze else targets
    if targets.shape[:-1] != rows.shape[:-1]:
        raise ValueError(
            f"Expected one target for each of {tuple(rows.shape[:-1])} clouds, or one row of targets "
            f"for each, got train_Y of shape {tuple(torch.as_tensor(train_Y).shape)}."
        )
    finite = targets.isfinite().all(-1)
    if not bool(finite.all()):
        first = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"Expected finite targets, but that of cloud {first[-1]} is "
            f"{targets[tuple(first)].tolist()}. Leave out clouds without a target."
        )
    return targets, squeeze
