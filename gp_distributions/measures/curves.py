"""Curves as targets: values at the same positions, some of which may be missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.arrays import given_points, to_tensor
from gp_distributions.measures.targets import as_numbers

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
