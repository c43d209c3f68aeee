"""Targets of bags: a column that is constant within each bag, or a table or mapping by bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.numerics.predictions import refuse_mask


def constant_within_bags(
    values: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64], labels: Any, name: str
) -> npt.NDArray[np.float64]:
    """Return the value of each bag from a column with a value for each atom.

    Args:
        values: The ``N`` values.
        offsets: The ``B + 1`` rows at which bags begin.
        labels: Labels of the bags, for error messages.
        name: Name of the column, for error messages.

    Raises:
        ValueError: If a value is not finite, or differs from another of the same bag.
    """
    first = values[offsets[:-1]]
    check_finite(first, labels, f"column {name!r}")
    wrong = np.flatnonzero(values != np.repeat(first, np.diff(offsets)))
    if len(wrong):
        bag = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        raise ValueError(
            f"Bag {labels[bag]!r}: expected one value of column {name!r} in all rows of the bag, "
            f"got {first[bag]} and {values[wrong[0]]}. A target belongs to a bag; choose one, or pass "
            "a table with one row for each bag as targets=."
        )
    return first


def check_finite(values: npt.NDArray[np.float64], labels: Any, name: str) -> None:
    """Raise an error that names the first bag whose target is not finite.

    Raises:
        ValueError: If there is one.
    """
    finite = np.isfinite(values)
    wrong = np.flatnonzero(~(finite if finite.ndim == 1 else finite.all(-1)))
    if len(wrong):
        where = wrong[0] if labels is None else repr(labels[wrong[0]])
        raise ValueError(
            f"Bag {where}: expected a finite target in {name}, got {values[wrong[0]]}. Leave out bags "
            "without a target."
        )


def target_tensor(values: Any, count: int, name: str = "targets") -> Tensor:
    """Return targets as a ``count`` or ``count x outputs`` tensor in double precision.

    Args:
        values: The targets.
        count: Number of bags.
        name: Name of the targets, for error messages.

    Raises:
        ValueError: If the targets are of another shape, or not finite.
    """
    refuse_mask(values, "Targets")
    targets = torch.as_tensor(values, dtype=torch.float64)
    if targets.dim() not in (1, 2) or len(targets) != count:
        raise ValueError(
            f"{name[:1].upper()}{name[1:]}: expected shape ({count},) or ({count}, outputs), one row "
            f"for each bag, got {tuple(targets.shape)}."
        )
    check_finite(targets.numpy(force=True), None, name)
    return targets


def number_array(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return one number, or as many numbers, for each of several bags as an array.

    Raises:
        ValueError: If there are none, or they differ in length or are not numbers.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"targets: expected one number, or as many numbers, for each bag: {error}."
        ) from error
    if array.ndim not in (1, 2) or not len(array):
        raise ValueError(
            "targets: expected one number or a list of numbers for each bag, got values of shape "
            f"{array.shape}."
        )
    return array


def joined(columns: Sequence[npt.NDArray[np.float64]], single: bool) -> npt.NDArray[np.float64]:
    """Return columns of targets as an array ``B``, or ``B x outputs`` if not ``single``."""
    return columns[0] if single else np.stack(columns, axis=-1)
