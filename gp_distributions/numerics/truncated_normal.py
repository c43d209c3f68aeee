"""Standard normal variables truncated to intervals, as functions of ones that are not."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.special import ndtri

# Intervals farther from zero than this hold no probability that floating-point numbers can represent.
_FARTHEST = 30.0


def truncated(normals: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    r"""Map standard normal variables to truncated ones, in ascending order.

    .. math:: z = \Phi^{-1}\bigl(\Phi(a) + (\Phi(b) - \Phi(a))\, \Phi(x)\bigr)

    Args:
        normals: Values :math:`x`.
        lower: Lower ends :math:`a`, which may be infinite, and broadcast with ``normals``.
        upper: Upper ends :math:`b`, likewise.

    Returns:
        The values :math:`z`, between the ends.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.truncated_normal import truncated
        >>> x = torch.tensor([-1.0, 0.0, 1.0, 9.0], dtype=torch.float64)
        >>> truncated(x, torch.tensor(0.0), torch.tensor(1.0)).round(decimals=3).tolist()
        [0.136, 0.442, 0.797, 1.0]
    """
    below, within, above = _probabilities(lower, upper)
    x = normals.double()
    left, right = below + within * _below(x), above + within * _below(-x)
    # Each tail keeps its digits.
    found = torch.where(left < right, ndtri(left), -ndtri(right))
    return found.clamp(lower.to(found), upper.to(found)).to(normals)


def untruncated(values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return the standard normal variables that :func:`truncated` maps to some values.

    Args:
        values: Values between the ends.
        lower: Lower ends, which may be infinite.
        upper: Upper ends, likewise.
    """
    below, within, above = _probabilities(lower, upper)
    z = values.double()
    left, right = (_below(z) - below) / within, (_below(-z) - above) / within
    found = torch.where(left < right, ndtri(left.clamp_min(0)), -ndtri(right.clamp_min(0)))
    return found.to(values)


def _probabilities(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the probabilities below, within and above intervals."""
    a = lower.double().clamp(max=_FARTHEST)
    b = upper.double().clamp(min=-_FARTHEST)
    within = torch.where(a > 0, _below(-a) - _below(-b), _below(b) - _below(a))
    return _below(a), within, _below(-b)


def _below(normals: Tensor) -> Tensor:
    """Return the probability below values; ``torch.special.ndtr`` is zero at -9."""
    return 0.5 * torch.erfc(normals * -math.sqrt(0.5))
