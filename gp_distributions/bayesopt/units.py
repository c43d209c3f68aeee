"""Units of outcomes, in which the absolute bounds and temperatures of BoTorch are small."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.models.arguments import standardize
from gp_distributions.warnings import PrecisionWarning, warn

# GPyTorch raises variances to 1e-10, and BoTorch smooths constraints by 1e-3.
_SMALL = 1e-3


def in_common_units(outcomes: Tensor) -> Tensor:
    """Scale outcomes to standard deviations between 1 and 2, by powers of two, which is exact.

    Args:
        outcomes: A ``T x outcomes`` tensor. Outcomes that are all equal stay as they are.
    """
    exponents = [math.frexp(deviation)[1] - 1 for deviation in _deviations(outcomes)]
    # In two steps, because 2^-e alone can overflow.
    halves = [(exponent // 2, exponent - exponent // 2) for exponent in exponents]
    for half in zip(*halves, strict=True):
        outcomes = outcomes * outcomes.new_tensor([2.0**-exponent for exponent in half])
    return outcomes


def check_units(outcomes: Tensor) -> None:
    """Warn if standard deviations are so small that bounds of BoTorch change acquisition functions."""
    smallest = min(_deviations(outcomes))
    if smallest < _SMALL:
        warn(
            f"An outcome has the standard deviation {smallest:.1e}. Acquisition functions of BoTorch "
            "raise variances to 1e-10 and smooth constraints by 1e-3, so that they lose the model's "
            "uncertainty and the constraints of small outcomes. Tell outcomes in a unit in which their "
            "standard deviations are about 1, or leave model and acquisition at their defaults.",
            PrecisionWarning,
        )


def _deviations(outcomes: Tensor) -> list[float]:
    """Return the standard deviations by which models divide; 1 for outcomes that are all equal."""
    transform = standardize(outcomes)
    with torch.no_grad():
        transform(outcomes)
    found: list[float] = transform.stdvs.flatten().tolist()
    return found
