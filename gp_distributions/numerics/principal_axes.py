"""Principal axes of weighted clouds, and a test of whether they point in all directions alike."""

from __future__ import annotations

import torch
from scipy.stats import chi2
from torch import Tensor

# An axis is distinct if the larger of the two neighbouring variances is at least this multiple of the
# smaller one, and its standard error, in radians, is at most this number for independent atoms.
_RATIO, _STANDARD_ERROR = 1.5, 0.15


def distinct_axes(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""Find the principal axis of each cloud that differs most from the others in variance.

    This is the axis of the largest or of the smallest variance, such as that of a rod or of a disc.
    With :math:`\rho` the ratio of this variance to the next, or of the next to it, and
    :math:`n = 1 / \sum_i w_i^2` atoms, the standard error of the axis of independent normal atoms is
    :math:`\rho^{1/2} / (n^{1/2} (\rho - 1))` radians (Anderson 1963).

    Args:
        points: A ``C x n x d`` tensor of atoms, with ``d >= 2``.
        weights: A ``C x n`` tensor of weights that sum to one in each cloud.

    Returns:
        The axes, a ``C x d`` tensor of unit vectors without a direction, and a ``C`` mask of the
        clouds whose axis is distinct.
    """
    centred = points - weights.unsqueeze(-2) @ points
    values, vectors = torch.linalg.eigh((weights.unsqueeze(-1) * centred).mT @ centred)
    values = values.clamp_min(0)
    # A spread below rounding has no axis, and a variance below rounding is zero.
    floor = 100 * torch.finfo(points.dtype).eps * points.square().sum(-1).amax(-1, keepdim=True)
    values = values + floor
    ratios = torch.stack([values[:, 1] / values[:, 0], values[:, -1] / values[:, -2]])
    axes = torch.stack([vectors[..., 0], vectors[..., -1]])
    last = ratios[1] >= ratios[0]
    ratio = torch.where(last, ratios[1], ratios[0])
    size = 1 / weights.square().sum(-1)
    precise = size * (ratio - 1).square() >= ratio / _STANDARD_ERROR**2
    return torch.where(last.unsqueeze(-1), axes[1], axes[0]), precise & (ratio >= _RATIO)


def uniform_axes_p_value(axes: Tensor) -> float:
    r"""Test whether axes are uniform over all directions, by Bingham's test.

    With :math:`T` the mean of :math:`a a^\top` over ``C`` axes :math:`a`, the statistic

    .. math::
        \frac{C d (d + 2)}{2} \left( \mathrm{tr}(T^2) - \frac{1}{d} \right)

    is asymptotically chi-squared with :math:`(d - 1)(d + 2) / 2` degrees of freedom for uniform axes
    (Bingham 1974; Mardia and Jupp 2000, section 10.7.1). In the plane this is Rayleigh's test of the
    doubled angles.

    Args:
        axes: A ``C x d`` tensor of unit vectors.

    Returns:
        The p-value.
    """
    count, dim = axes.shape
    moments = axes.mT @ axes / count
    statistic = count * dim * (dim + 2) / 2 * (moments.square().sum().item() - 1 / dim)
    return float(chi2.sf(statistic, (dim - 1) * (dim + 2) / 2))
