"""Targets as a model is given them, as tensors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.outcome import Standardize
from numpy.typing import ArrayLike
from torch import Tensor


def check_order(train_X: Any, train_Y: Any) -> None:
    """Raise where targets have the names of the clouds, in another order.

    Args:
        train_X: What may have ``labels``, as clouds that ``from_frame`` read do.
        train_Y: What may have an ``index``, as a series and a data frame do.

    Raises:
        ValueError: If index and labels hold the same names at other places.
    """
    labels, index = getattr(train_X, "labels", None), getattr(train_Y, "index", None)
    if labels is None or index is None or callable(index) or len(index) != len(labels):
        return
    names = list(index)
    if names != labels.tolist() and Counter(names) == Counter(labels.tolist()):
        first = next(i for i, name in enumerate(names) if name != labels[i])
        raise ValueError(
            f"Expected targets in the order of the clouds, but target {first} is named "
            f"{names[first]!r} and cloud {first} {labels.tolist()[first]!r}. Give "
            "targets.loc[clouds.labels]."
        )


def as_variances(train_Yvar: Tensor | ArrayLike, rows: Tensor, targets: Tensor) -> Tensor:
    """Variances of the noise of targets, of the shape of these.

    Raises:
        ValueError: If the shape is another, or one is not positive and finite.
    """
    variances, _ = _columns(train_Yvar, rows)
    if variances.shape != targets.shape:
        raise ValueError(
            f"Expected a variance for each target, {tuple(targets.shape)}, got train_Yvar of shape "
            f"{tuple(variances.shape)}."
        )
    positive = ((variances > 0) & variances.isfinite()).all(-1)
    if not bool(positive.all()):
        first = (~positive).nonzero()[0].tolist()
        raise ValueError(
            f"Expected positive variances, but that of cloud {first[-1]} is "
            f"{variances[tuple(first)].tolist()}."
        )
    return variances


def standardize(targets: Tensor) -> Standardize:
    """The transform to unit variance of ``batch_shape x T x outputs`` targets in any unit.

    BoTorch leaves standard deviations below 1e-8 as they are; here, those that are rounding errors.
    """
    largest = targets.abs().amax(-2)
    limits = torch.finfo(targets.dtype)
    rounding = 64 * limits.eps * largest[largest > 0].min().item() if bool(largest.any()) else 0.0
    return Standardize(
        targets.shape[-1],
        batch_shape=targets.shape[:-2],
        min_stdv=max(limits.tiny, rounding),
    )


def as_targets(train_Y: Tensor | ArrayLike, rows: Tensor) -> tuple[Tensor, bool]:
    """Targets as ``batch_shape x T x outputs``, and whether that added the last axis.

    Raises:
        ValueError: If their number is another than that of rows, or one is no finite number.
    """
    targets, squeeze = _columns(train_Y, rows)
    if targets.shape[:-1] != rows.shape[:-1]:
        raise ValueError(
            f"Expected one target for each of {tuple(rows.shape[:-1])} clouds, or one row of targets "
            f"for each, got train_Y of shape {tuple(np.shape(train_Y))}."
        )
    finite = targets.isfinite().all(-1)
    if not bool(finite.all()):
        first = (~finite).nonzero()[0].tolist()
        remedy = "Leave out clouds without a target."
        if bool(targets[tuple(first)].isfinite().any()):
            remedy = (
                "Where clouds have some of the outputs, fit a model for each output, of the clouds that "
                "have it, and join them: botorch.models.ModelListGP(*models)."
            )
        raise ValueError(
            f"Expected finite targets, but that of cloud {first[-1]} is "
            f"{targets[tuple(first)].tolist()}. {remedy}"
        )
    return targets, squeeze


def _columns(given: Tensor | ArrayLike, rows: Tensor) -> tuple[Tensor, bool]:
    """Numbers as columns beside rows, and whether that added the axis of columns."""
    if not isinstance(given, Tensor):
        given = np.array(given)  # a copy: columns of data frames are read-only
        if given.dtype.kind not in "biuf":
            raise ValueError(
                f"Expected numbers as targets, got an array of {given.dtype}. ClassificationGP takes "
                "labels."
            )
    values = torch.as_tensor(given, dtype=rows.dtype, device=rows.device)
    squeeze = values.dim() == rows.dim() - 1
    return (values.unsqueeze(-1) if squeeze else values), squeeze
