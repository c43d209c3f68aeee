r"""Normal distributions on the line: slices of Gaussians, and Wasserstein distances between them.

The quantile functions of :math:`N(a, s^2)` and :math:`N(b, t^2)` are :math:`a + s z` and
:math:`b + t z` with the quantile function :math:`z` of the standard normal. Hence, with
:math:`D = a - b`, :math:`E = s - t` and standard normal :math:`Z`,

.. math::
    W_2^2 = D^2 + E^2, \qquad
    W_1 = \mathbb{E} |D + E Z|
        = \sqrt{2 / \pi} \, |E| \, e^{-D^2 / (2 E^2)} + D \, \mathrm{erf}(D / (\sqrt 2 \, |E|)),

the mean of a folded normal distribution. The derivatives of :math:`W_1` are
:math:`\partial W_1 / \partial D = \mathrm{erf}(D / (\sqrt 2 \, |E|))` and
:math:`\partial W_1 / \partial E = \mathrm{sign}(E) \sqrt{2 / \pi} \, e^{-D^2 / (2 E^2)}`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.numerics.linear_algebra import matmul, square_root

# E|Z| for standard normal Z.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


def projected_deviations(covariance: Tensor, directions: Tensor) -> Tensor:
    r"""Standard deviations of Gaussians projected onto lines, :math:`(\theta^\top S \theta)^{1/2}`.

    Variances that are negative by rounding count as zero. The derivative of the root at zero is set
    to zero.

    Args:
        covariance: A ``C x d x d`` tensor of positive semi-definite matrices.
        directions: An ``L x d`` tensor of unit vectors.

    Returns:
        A ``C x L`` tensor.

    Raises:
        ValueError: If a variance is NaN, or more negative than rounding explains.
    """
    squares = (directions.unsqueeze(-1) * directions.unsqueeze(-2)).flatten(-2)
    variance = matmul(covariance.flatten(-2), squares.T)
    rounding = 1000 * covariance.shape[-1] ** 2 * torch.finfo(variance.dtype).eps
    largest = covariance.detach().abs().amax((-2, -1)).unsqueeze(-1)
    bad = ~(variance.detach() >= -rounding * largest)  # NaN is bad
    if bool(bad.any()):
        which, line = bad.nonzero()[0].tolist()
        raise ValueError(
            "Expected rows with positive semi-definite covariances, but one covariance is "
            f"{covariance[which].tolist()}, whose variance along a line is {variance[which, line]}."
        )
    return square_root(variance)


def normal_wasserstein(x1: Tensor, x2: Tensor) -> Tensor:
    """Sum of the Wasserstein distances of order one over slices, for corresponding rows.

    Args:
        x1: A ``batch_shape x 2 L`` tensor of ``L`` means followed by ``L`` standard deviations.
        x2: A tensor with the layout of ``x1``, whose batch axes broadcast with those of ``x1``.

    Returns:
        A ``batch_shape`` tensor of distances. Coincident slices have a gradient of zero.
    """
    shift, stretch = (x1 - x2).chunk(2, dim=-1)
    size = stretch.abs()
    # At E = 0 the bound keeps the ratio, its square and its derivatives D / E^2 finite.
    ratio = shift / (math.sqrt(2) * size.clamp_min(torch.finfo(x1.dtype).tiny ** 0.25))
    return (MEAN_ABSOLUTE * (-ratio.square()).exp() * size + ratio.erf() * shift).sum(-1)
