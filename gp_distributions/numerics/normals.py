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
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.numerics.linear_algebra import matmul, square_root
from gp_distributions.numerics.pairwise import all_pairs

# E|Z| for standard normal Z.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)

# Number of elements in one intermediate result of a block of pairs.
_BLOCK_ELEMENTS = 2**16


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
    x1, x2 = torch.broadcast_tensors(x1, x2)
    x1, x2, shape = x1.flatten(0, -2), x2.flatten(0, -2), x1.shape[:-1]
    return _Wasserstein.apply(x1, x2.unsqueeze(-2)).reshape(shape)


def normal_wasserstein_all(x1: Tensor, x2: Tensor) -> Tensor:
    """Compute :func:`normal_wasserstein` for all pairs of rows, in bounded memory.

    Args:
        x1: A ``batch_shape x N x 2 L`` tensor of ``L`` means followed by ``L`` standard deviations.
        x2: A ``batch_shape x M x 2 L`` tensor with the same layout. Passing ``x1`` itself halves the
            time if there are no batch axes.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    if x1.dim() == 2 and x2.dim() > 2:
        return all_pairs(_wasserstein, x2, x1).mT
    return all_pairs(_wasserstein, x1, x2)


def _wasserstein(x1: Tensor, x2: Tensor) -> Tensor:
    if x2.dim() == 2:
        return _Wasserstein.apply(x1, x2[None])
    shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    x1, x2 = (x.expand(*shape, -1, -1).flatten(0, -3) for x in (x1, x2))
    pairs = [_Wasserstein.apply(a, b[None]) for a, b in zip(x1, x2, strict=True)]
    return torch.stack(pairs).unflatten(0, shape)


class _Wasserstein(torch.autograd.Function):
    """Distances from each of ``N x 2 L`` rows to ``M`` rows of its own, or to ``M`` shared rows.

    The other rows are an ``N x M x 2 L`` tensor, or ``1 x M x 2 L`` if they are shared. Only the inputs
    are saved for the backward pass, as their differences take more memory. Each block fits the
    processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor) -> Tensor:
        ctx.save_for_backward(x1, x2)
        out = x1.new_empty(len(x1), x2.shape[-2])
        for block, own, others in _blocks(x1, x2):
            shift, stretch, erf, density = _terms(own, others)
            out[block] = (density * stretch.abs() + erf * shift).sum(-1)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x1, x2 = ctx.saved_tensors
        grad1, grad2 = torch.empty_like(x1), torch.zeros_like(x2)
        for block, own, others in _blocks(x1, x2):
            _, stretch, erf, density = _terms(own, others)
            slopes = torch.cat([erf, density * stretch.sign()], dim=-1)
            slopes = slopes * grad[block].unsqueeze(-1)
            grad1[block] = slopes.sum(-2)
            grad2[block if len(x2) > 1 else slice(None)] -= slopes.sum_to_size(others.shape)
        return grad1, grad2


def _blocks(x1: Tensor, x2: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    size = max(1, 2 * _BLOCK_ELEMENTS // x2[0].numel())
    for start in range(0, len(x1), size):
        block = slice(start, start + size)
        yield block, x1[block].unsqueeze(-2), x2 if len(x2) == 1 else x2[block]


def _terms(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return D, E, erf(D / (sqrt 2 |E|)) and sqrt(2 / pi) exp(-D^2 / (2 E^2))."""
    shift, stretch = (x1 - x2).chunk(2, dim=-1)
    # At E = 0 the ratio overflows, or is zero if D = 0; the terms are finite in both cases.
    ratio = shift / (math.sqrt(2) * stretch.abs().clamp_min(torch.finfo(x1.dtype).tiny))
    return shift, stretch, ratio.erf(), MEAN_ABSOLUTE * (-ratio.square()).exp()
