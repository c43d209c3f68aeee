"""Errors of predictions in units of their standard deviations."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.numerics.masks import refuse_mask

Values = Tensor | ArrayLike


def standardized_errors(
    y: Values, mean: Values, std: Values, *, outputs: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute ``(y - mean) / std`` in the highest precision of the three.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations.
        outputs: Whether the three may have a second axis, of outputs.

    Returns:
        The errors and the standard deviations, detached, on the device of ``std``.

    Raises:
        ValueError: If shapes differ or have other axes, a value is masked, complex or not finite, or a
            standard deviation is not positive.
    """
    names = ("Targets", "Means", "Standard deviations")
    values = [_tensor(v, name) for v, name in zip((y, mean, std), names, strict=True)]
    dtype = functools.reduce(torch.promote_types, [v.dtype for v in values])
    target, centre, std = (v.to(values[-1].device, dtype) for v in values)
    if not target.shape == centre.shape == std.shape or std.dim() not in (1, 1 + outputs):
        single = not outputs and std.dim() == 2
        advice = " Pass one output at a time: y[:, 0], mean[:, 0] and std[:, 0]." * single
        raise ValueError(
            "Expected targets, means and standard deviations of the same shape "
            f"{'(N,) or (N, outputs)' if outputs else '(N,)'}, got "
            f"{tuple(target.shape)}, {tuple(centre.shape)} and {tuple(std.shape)}.{advice}"
        )
    bad = (~(target.isfinite() & centre.isfinite() & std.isfinite() & (std > 0))).nonzero()
    if len(bad):
        first = tuple(bad[0].tolist())
        raise ValueError(
            "Expected finite targets and means, and standard deviations > 0, but those of bag "
            f"{first[0]} are {float(target[first])}, {float(centre[first])} and {float(std[first])}."
        )
    return (target - centre) / std, std


def _tensor(values: Values, name: str) -> Tensor:
    """Convert values to a tensor, copying arrays because columns of data frames are read-only."""
    refuse_mask(values, name)
    tensor = values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    if tensor.is_complex():
        raise ValueError(f"{name}: expected real numbers, got {tensor.dtype}.")
    return tensor if tensor.is_floating_point() else tensor.double()
