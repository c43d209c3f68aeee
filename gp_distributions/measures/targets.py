"""Targets, noise variances, labels and curves: checks, and their conversion to tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import (
    Array,
    Labels,
    given_points,
    is_missing,
    real_array,
    to_tensor,
)
from gp_distributions.measures.tables import check_names, index_names, names_of
from gp_distributions.numerics.predictions import refuse_mask
from gp_distributions.warnings import OrderWarning, warn

# More different numbers than these are taken for targets, unless all are integers.
_MANY = 10


def check_order(train_X: Any, train_Y: Any, noun: str = "targets") -> None:
    """Check that targets whose index names the clouds are in the order of the clouds.

    Args:
        train_X: Training inputs. Containers of this package may have labels, and pandas frames have an
            index.
        train_Y: Targets. Pandas series and frames have an index.
        noun: What the targets are called in error messages.

    Raises:
        TypeError: If the targets are a dictionary.
        ValueError: If the index and the labels differ in their names or in their order.

    Warns:
        OrderWarning: If the index only counts the targets, while the clouds have names.
    """
    if isinstance(train_Y, Mapping):
        raise TypeError(
            f"Expected a list or array of {noun}, got a dictionary. Pass [targets[label] for label in "
            "clouds.labels]."
        )
    given, names = names_of(train_Y), names_of(train_X)
    if given is not None and names is not None:
        check_names(names, given, "the clouds", f"the {noun}")
        default = given.counted and given.listed() == list(range(len(given.values)))
        if default and isinstance(names.listed()[0], str):
            warn(
                f"The {noun} are numbered, but the clouds have names, such as {names.listed()[0]!r}: "
                f"the {noun} are taken to be in their order. To be sure, give the {noun} the names as "
                f"index, and pass {noun}.loc[clouds.labels]; if the order is right, {noun}.to_numpy().",
                OrderWarning,
            )


def check_apart(X: Any, y: Any) -> None:
    """Check that targets are not among the covariates, as a column of their name and values.

    Raises:
        ValueError: If they are.
    """
    name = getattr(y, "name", None)
    for block in getattr(X, "blocks", {}).values():
        found = block.columns if isinstance(block.columns, Mapping) else {}
        if name in found and found[name].tolist() == np.asarray(y).tolist():
            raise ValueError(
                f"Expected inputs without the targets, got their column {name!r}. Leave it out: "
                f"frame.drop(columns=[{name!r}])."
            )


def label_of(data: Any, row: int) -> str:
    """Return the name of a row in the index of a pandas series or frame, for error messages."""
    names = index_names(data)
    return "" if names is None else f" (named {names.values.tolist()[row]!r})"


def as_variances(
    train_Yvar: Tensor | ArrayLike,
    rows: Tensor,
    targets: Tensor,
    *,
    noun: str = "variance",
    name: str = "train_Yvar",
) -> Tensor:
    """Convert noise variances, or other positive numbers, to a tensor of the same shape as ``targets``.

    Args:
        train_Yvar: The numbers; a single one is that of all clouds.
        rows: The rows of the clouds.
        targets: Their targets, with an axis of outputs.
        noun: What a number is, for error messages.
        name: The argument of the caller, for error messages.

    Raises:
        ValueError: If the shapes differ, or a number is not positive and finite.
    """
    variances, _ = _columns(train_Yvar, rows)
    if noun != "variance" and not variances.dim():
        variances = variances.expand(targets.shape)
    if variances.shape != targets.shape:
        raise ValueError(
            f"Expected one {noun} for each target, {tuple(targets.shape)}, got {name} of shape "
            f"{tuple(variances.shape)}."
        )
    bad = _first(~((variances > 0) & variances.isfinite()))
    if bad:
        raise ValueError(
            f"Expected positive {noun}s, but that of cloud {bad[-1]}{label_of(train_Yvar, bad[-1])} is "
            f"{variances[bad].tolist()}."
        )
    return variances.clone()  # that a user may change


def as_targets(train_Y: Tensor | ArrayLike, rows: Tensor) -> tuple[Tensor, bool]:
    """Convert targets to a tensor with an axis of outputs.

    Returns:
        A ``batch_shape x T x outputs`` tensor in double precision, and whether ``train_Y`` had no axis
        of outputs.

    Raises:
        ValueError: If the numbers of targets and rows differ, there are none, or a target is not
            finite.
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
        raise ValueError(
            f"Expected finite targets, but that of cloud {bad[-1]}{label_of(train_Y, bad[-1])} is "
            f"{targets[bad].tolist()}. Leave out clouds without a target. If only some outputs of a "
            "cloud are known, fit one model for each output: botorch.models.ModelListGP(*models)."
        )
    return targets, squeeze


def _first(bad: Tensor) -> tuple[int, ...]:
    """Return the index of the first cloud with a bad value, or an empty tuple if there is none."""
    where = bad.any(-1).nonzero()
    return tuple(where[0].tolist()) if len(where) else ()


def read_labels(labels: Tensor | ArrayLike, count: int) -> tuple[Labels, Tensor]:
    """Find the distinct labels in sorted order, and the class index of each label.

    Args:
        labels: The ``T`` labels.
        count: The expected number of labels.

    Returns:
        An array of the ``C`` distinct labels, and a tensor of ``T`` class indices.

    Raises:
        ValueError: If the number of labels is not ``count``, a label is missing (None, NaN, masked),
            there are more than ten different numbers that are not all integers, or fewer than two
            classes, or the labels cannot be sorted.
    """
    refuse_mask(labels, "Labels")
    values = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if values.shape != (count,):
        raise ValueError(
            f"Expected one label for each of {count} clouds, got labels of shape {values.shape}."
        )
    given = values.tolist()
    for cloud in (cloud for cloud, value in enumerate(given) if is_missing(value)):
        raise ValueError(
            f"Expected a label for each cloud, but that of cloud {cloud}{label_of(labels, cloud)} is "
            f"{given[cloud]!r}. Leave out clouds without a label."
        )
    broken = [value for value in given if isinstance(value, float) and not value.is_integer()]
    if broken and len(set(given)) > _MANY:
        raise ValueError(
            f"Expected labels, got continuous numbers, such as {broken[0]!r}. Use DistributionGP for "
            "numbers, or pass numbers that are labels as text."
        )
    if all(isinstance(value, str) for value in given):
        values = np.array(given, dtype=str)  # arrays of objects, as of data frames, cannot be saved
    try:
        classes, index = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"Expected labels of one kind: {error}.") from error
    if len(classes) < 2:
        raise ValueError(f"Expected at least two classes, got {classes.tolist()}.")
    return classes, torch.from_numpy(index)


def as_numbers(given: Tensor | ArrayLike) -> Array:
    """Return targets or variances as a tensor or an array of numbers.

    Raises:
        ValueError: If they are masked or not numbers.
    """
    refuse_mask(given, "Targets and variances")
    try:
        return real_array(given, "Targets and variances")
    except ValueError as error:
        raise ValueError(
            f"{error} Use ClassificationGP for labels, and leave out clouds without a target."
        ) from error


def _columns(given: Tensor | ArrayLike, rows: Tensor) -> tuple[Tensor, bool]:
    """Convert targets or variances to double precision, and add an axis of outputs if they have none.

    Returns:
        The converted tensor, and whether the axis of outputs was added.
    """
    values = to_tensor(as_numbers(given), torch.float64, rows.device).detach()
    squeeze = values.dim() == rows.dim() - 1
    return (values.unsqueeze(-1) if squeeze else values), squeeze


# Entries of the largest array of an inference with missing entries: one gibibyte.
_LARGEST = 2**27


def as_curves(train_Y: Tensor | ArrayLike) -> Tensor:
    """Convert curves to a tensor.

    Args:
        train_Y: ``N`` curves of ``M`` values, ``N x M``; NaN where a value is missing.

    Returns:
        An ``N x M`` tensor in double precision.

    Raises:
        ValueError: If curves differ in their lengths; there are fewer than two values in each; a value
            is infinite; a curve has no known value, or an output has fewer than two; or so many
            are missing that exact inference would need too much memory.
    """
    given: Any = train_Y
    if isinstance(given, list | tuple) or getattr(given, "dtype", None) == np.dtype(object):
        lengths = [math.prod(np.shape(curve)) for curve in given]
        for number, length in enumerate(lengths):
            if length != lengths[0]:
                raise ValueError(
                    f"Expected curves of one length, but curve {number} has {length} values and curve 0 "
                    f"has {lengths[0]}. Interpolate all curves at the same positions, "
                    "np.interp(positions, x, y, left=np.nan, right=np.nan): NaN marks missing values."
                )
    curves = to_tensor(as_numbers(train_Y), torch.float64, torch.device("cpu")).detach()
    if curves.dim() != 2 or curves.shape[-1] < 2:
        raise ValueError(
            f"Expected an N x M array of N curves, got shape {tuple(curves.shape)}. For one output, use "
            "DistributionGP."
        )
    missing = curves.isnan()
    for axis, name, least in ((1, "curve", 1), (0, "output", 2)):
        known = (~missing).sum(axis)
        if (known < least).any():
            place = int((known < least).nonzero()[0])
            raise ValueError(
                f"Expected at least {least} known value{'s' * (least > 1)} of each {name}, got "
                f"{int(known[place])} of {name} {place}. Leave the {name} out."
            )
    if curves.isinf().any():
        curve, output = curves.isinf().nonzero()[0].tolist()
        raise ValueError(
            f"Expected finite values, or NaN for missing ones, but curve {curve} has "
            f"{curves[curve, output]} at output {output}."
        )
    most = _LARGEST // curves.numel()
    if int(missing.sum()) > most:
        raise ValueError(
            f"Expected at most {most} missing values in {curves.shape[0]} curves of {curves.shape[1]} "
            f"values, got {int(missing.sum())}: memory grows with their number. Leave out outputs or "
            "curves that lack many."
        )
    return curves


def as_positions(positions: Any, curves: Tensor) -> Tensor:
    """Convert the positions of the values of curves to an ``M x p`` tensor.

    Args:
        positions: ``M`` numbers, or an ``M x p`` array.
        curves: The curves, ``N x M``.

    Raises:
        ValueError: If there are not ``M`` finite positions, or two are the same.
    """
    values = to_tensor(as_numbers(positions), torch.float64, curves.device)
    values = values.unsqueeze(-1) if values.dim() == 1 else values
    points = given_points(values, "positions", ("M", values.shape[-1]))
    if len(points) != curves.shape[-1]:
        raise ValueError(
            f"Expected a position for each of the {curves.shape[-1]} values of a curve, got "
            f"{len(points)}."
        )
    if len(points.unique(dim=0)) < len(points):
        raise ValueError(
            "Expected different positions, got one twice. Mark values of several curves with a second "
            "column of positions."
        )
    return points
