"""What a model is given, as tensors: rows of distributions, and targets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures._kinds import KINDS, Distributions

__all__ = ["Distributions", "as_rows", "as_targets", "check_kind"]


def as_rows(X: Distributions | Tensor) -> Tensor:
    """Rows of distributions; rows as they are.

    Raises:
        TypeError: If it is something else.
    """
    if isinstance(X, Distributions):
        return X.pack()
    if isinstance(X, Tensor):
        return X
    raise TypeError(
        f"Expected PointClouds, Gaussians, GaussianMixtures or a tensor of rows, got "
        f"{type(X).__name__}. Make clouds of a list of arrays with PointClouds.from_list."
    )


def check_kind(X: Distributions | Tensor, covar_module: torch.nn.Module) -> None:
    """Raise where kernels would read the rows of distributions as something else.

    Raises:
        ValueError: If a kernel is of another dimension, or of other inputs.
    """
    if isinstance(X, Tensor):
        return
    kind = KINDS[type(X)]
    for kernel in covar_module.modules():
        if isinstance(kernel, DistributionKernel) and kernel.active_dims is None:
            distance = kernel.distance
            if (distance.inputs, distance.dim) != (kind, X.dim):
                raise ValueError(
                    f"Expected {distance.inputs} of dimension {distance.dim}, which the kernel reads, "
                    f"got {type(X).__name__} of dimension {X.dim}. Their kernel is made with "
                    f'dim={X.dim} and inputs="{kind}".'
                )


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
