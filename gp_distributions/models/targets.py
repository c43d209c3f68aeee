"""Checks of targets and their conversion to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.outcome import Standardize
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gp_distributions.measures.arrays import Array, as_floats, real_array
from gp_distributions.measures.inputs import names_of
from gp_distributions.measures.names import check_names, index_names
from gp_distributions.models.scales import check_targets
from gp_distributions.numerics.predictions import refuse_mask


def check_order(train_X: Any, train_Y: Any, noun: str = "targets") -> None:
    """Check that targets whose index names the clouds are in the order of the clouds.

    Args:
        train_X: Training inputs. Containers of this package may have labels, and pandas frames have an
            index.
        train_Y: Targets. Pandas series and frames have an index.
        noun: What the targets are called in error messages.

    Raises:
        ValueError: If the index and the labels differ in their names or in their order.
    """
    given, names = names_of(train_Y), names_of(train_X)
    if given is not None and names is not None:
        check_names(names, given, "the clouds", f"the {noun}", table=noun)


def label_of(data: Any, row: int) -> str:
    """Return the name of a row in the index of a pandas series or frame, for error messages."""
    names = index_names(data)
    return "" if names is None else f" (named {names[row : row + 1].listed()[0]!r})"


def as_variances(train_Yvar: Tensor | ArrayLike, rows: Tensor, targets: Tensor) -> Tensor:
    """Convert noise variances to a tensor of the same shape as ``targets``.

    Raises:
        ValueError: If the shapes differ, or a variance is not positive and finite.
    """
    variances, _ = _columns(train_Yvar, rows)
    if variances.shape != targets.shape:
        raise ValueError(
            f"Expected a variance for each target, {tuple(targets.shape)}, got train_Yvar of shape "
            f"{tuple(variances.shape)}."
        )
    variances = variances.to(rows)
    bad = _first(~((variances > 0) & variances.isfinite()))
    if bad:
        raise ValueError(
            f"Expected positive variances, but that of cloud {bad[-1]} is {variances[bad].tolist()}."
        )
    return variances


def standardize(targets: Tensor) -> Standardize:
    """Make the transform that standardises ``batch_shape x T x outputs`` targets in any unit.

    By default, BoTorch leaves targets with a standard deviation below 1e-8 unscaled. The transform that
    this function returns leaves only those unscaled whose standard deviation is a rounding error.
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
    """Convert targets to a tensor with an axis of outputs.

    Returns:
        A ``batch_shape x T x outputs`` tensor, and whether ``train_Y`` had no axis of outputs.

    Raises:
        ValueError: If the numbers of targets and rows differ, there are none, a target is not finite, or
            the squares of centred targets overflow or underflow.
    """
    targets, squeeze = _columns(train_Y, rows)
    if targets.shape[:-1] != rows.shape[:-1]:
        read = " A tensor is read as rows; pass N x n x d points as PointClouds(points)."
        points = rows.dim() == 3 and np.shape(train_Y)[:1] == rows.shape[:1]
        raise ValueError(
            f"Expected one target for each of {tuple(rows.shape[:-1])} clouds, or one row of targets "
            f"for each, got targets of shape {tuple(np.shape(train_Y))}.{read * points}"
        )
    if not targets.numel():
        raise ValueError(
            f"Expected at least one cloud and output, got targets of shape {tuple(targets.shape)}."
        )
    bad = _first(~targets.isfinite())
    if bad:
        remedy = "Leave out clouds without a target."
        if bool(targets[bad].isfinite().any()):
            remedy = (
                "If only some of the outputs are known for a cloud, fit one model for each output to "
                "the clouds for which it is known, and join them: botorch.models.ModelListGP(*models)."
            )
        raise ValueError(
            f"Expected finite targets, but that of cloud {bad[-1]}{label_of(train_Y, bad[-1])} is "
            f"{targets[bad].tolist()}. {remedy}"
        )
    check_targets(targets, rows.dtype)
    return targets.to(rows), squeeze


def _first(bad: Tensor) -> tuple[int, ...]:
    """Return the index of the first cloud with a bad value, or an empty tuple if there is none."""
    where = bad.any(-1).nonzero()
    return tuple(where[0].tolist()) if len(where) else ()


def _strange(given: Any, array: NDArray[Any]) -> str:
    """Describe the first target that is not a number."""
    for place, value in np.ndenumerate(np.asarray(given, dtype=object)):
        if not isinstance(value, Decimal | int | float | np.integer | np.floating | np.bool_):
            cloud = place[0] if place else 0
            return f"{value!r} for cloud {cloud}{label_of(given, cloud)}"
    return f"an array of {array.dtype}"


def as_numbers(given: Tensor | ArrayLike) -> Array:
    """Return targets or variances as a tensor, or as a new array of numbers.

    Raises:
        TypeError: If they are a dictionary.
        ValueError: If they are masked or not numbers.
    """
    listed = isinstance(given, list | tuple) and all(isinstance(each, Tensor) for each in given)
    if not (isinstance(given, Tensor) or listed):
        if isinstance(given, Mapping):
            raise TypeError(
                "Expected a list or array of targets, got a dictionary. Pass [targets[label] for label "
                "in clouds.labels]."
            )
        refuse_mask(given, "Targets and variances")
        # A copy: columns of data frames, and what NumPy makes of PyArrow's chunks, are read-only.
        array = as_floats(np.asarray(given).copy())
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"Expected numbers as targets, got {_strange(given, array)}. Use ClassificationGP for "
                "labels, and leave out clouds without a target."
            )
        given = array
    return real_array(given, "Targets and variances")


def _columns(given: Tensor | ArrayLike, rows: Tensor) -> tuple[Tensor, bool]:
    """Convert targets or variances to double precision, and add an axis of outputs if they have none.

    Returns:
        The converted tensor, and whether the axis of outputs was added.
    """
    values = torch.as_tensor(as_numbers(given), dtype=torch.float64, device=rows.device).detach()
    squeeze = values.dim() == rows.dim() - 1
    return (values.unsqueeze(-1) if squeeze else values), squeeze
