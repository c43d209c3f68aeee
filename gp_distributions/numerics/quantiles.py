r"""Quantile functions on the line: of samples, averaged over cells, and of normals.

The quantile function :math:`Q` of atoms :math:`x_1 \le \dots \le x_n` with weights :math:`w_k` that
sum to one is :math:`x_k` on :math:`(c_{k-1}, c_k]`, where :math:`c` are the cumulative weights. Its
integral

.. math::
    \Phi(t) = \int_0^t Q = I_{k-1} + x_k (t - c_{k-1}), \qquad I_k = \sum_{i \le k} w_i x_i,

gives the average over the cell :math:`((j-1)/N, j/N]` as :math:`N (\Phi(j/N) - \Phi((j-1)/N))`.
Averaging is a projection in :math:`L^2(0, 1)` and a contraction in :math:`L^1(0, 1)`, so distances
between averages never exceed those between quantile functions.

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
from gp_distributions.rows.tensors import is_tracked


def argsort(values: Tensor) -> Tensor:
    """Indices that sort ``values`` along the last axis, as an integer tensor."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.detach().numpy().argsort(axis=-1))
    return values.detach().argsort(dim=-1)


def sort(values: Tensor) -> Tensor:
    """Sort ``values`` in ascending order along the last axis; differentiable."""
    if is_tracked(values):
        return values.gather(-1, argsort(values))
    if values.device.type == "cpu":
        sorted_values = values.detach().numpy().copy()
        sorted_values.sort(axis=-1)
        return torch.from_numpy(sorted_values)
    return values.sort(dim=-1).values


# With more than this many values in a cell, a sum over each cell is faster than a matrix product.
_MANY = 10


def cell_quantiles(values: Tensor, weights: Tensor, num_cells: int) -> Tensor:
    """Average the quantile functions of the slices of clouds over equal cells.

    Atoms of equal weights that need no gradient take a faster way: that of
    :func:`uniform_cell_quantiles` if all clouds have the same size, and else that of
    :func:`padded_cell_quantiles`. All others take that of :func:`weighted_cell_quantiles`.

    Args:
        values: A ``C x L x n`` tensor: the atoms of ``C`` clouds on ``L`` lines, in any order.
        weights: A ``C x n`` tensor of non-negative weights that sum to one in each cloud.
        num_cells: Number ``N`` of cells.

    Returns:
        A ``C x L x N`` tensor.
    """
    if not is_tracked(weights):
        if equally_weighted(weights):
            return uniform_cell_quantiles(values, num_cells)
        padding = weights == 0
        if (padding | (weights == weights.amax(-1, keepdim=True))).all():
            padded = values.masked_fill(padding.unsqueeze(-2), torch.inf)
            return padded_cell_quantiles(padded, (~padding).sum(-1, keepdim=True), num_cells)
    return weighted_cell_quantiles(values, weights.unsqueeze(-2), num_cells)


def quantiles_at(values: Tensor, weights: Tensor, levels: Tensor) -> Tensor:
    """Evaluate the quantile functions of the slices of clouds, each at its own levels.

    Quantiles are atoms, so their gradient with respect to the weights is zero.

    Args:
        values: A ``C x L x n`` tensor: the atoms of ``C`` clouds on ``L`` lines, in any order.
        weights: A ``C x n`` tensor of non-negative weights that sum to one in each cloud.
        levels: An ``L x N`` tensor of numbers in (0, 1], the levels on each line.

    Returns:
        A ``C x L x N`` tensor.
    """
    order = argsort(values)
    knots = weights.unsqueeze(-2).expand(values.shape).gather(-1, order).cumsum(-1)
    steps = _step_at(knots, levels * knots[..., -1:], right=False)
    return values.gather(-1, order).gather(-1, steps)


def equally_weighted(weights: Tensor) -> bool:
    """Return whether all weights of all clouds, a ``C x n`` tensor, are equal."""
    return bool((weights == weights[:1, :1]).all())


def uniform_cell_quantiles(values: Tensor, num_cells: int) -> Tensor:
    """Average the quantile function of equally weighted samples over equal cells.

    If ``n`` divides ``num_cells``, the quantile function is constant on each cell and the averages are
    exactly its values.

    Args:
        values: A ``batch_shape x n`` tensor of samples, in any order.
        num_cells: Number ``N`` of cells.

    Returns:
        A ``batch_shape x N`` tensor.
    """
    num_values = values.shape[-1]
    ordered = sort(values)
    if num_values == num_cells:
        return ordered
    if num_cells % num_values == 0:
        return ordered.repeat_interleave(num_cells // num_values, dim=-1)
    if num_values % num_cells == 0:
        return ordered.unflatten(-1, (num_cells, -1)).mean(-1)
    steps, shares = _overlapping(num_values, num_cells)
    if num_values > _MANY * num_cells:
        return (ordered[..., steps.to(values.device)] * shares.to(ordered)).sum(-1)
    overlaps = shares.new_zeros(num_cells, num_values).scatter_add_(1, steps, shares)
    return matmul(ordered, overlaps.T.contiguous().to(ordered))


def _overlapping(num_values: int, num_cells: int) -> tuple[Tensor, Tensor]:
    """Return the steps that overlap each cell, ``N x K``, and the shares of the cell that they cover."""
    # In units of 1 / (n N) both grids are integers, so the shares are exact.
    starts = torch.arange(num_cells)[:, None] * num_values
    most = num_values // num_cells + 2
    steps = starts // num_cells + torch.arange(most)
    upper = torch.minimum((steps + 1) * num_cells, starts + num_values)
    lower = torch.maximum(steps * num_cells, starts)
    shares = (upper - lower).clamp_min(0).to(torch.float64) / num_values
    return steps.clamp_max(num_values - 1), shares


def padded_cell_quantiles(values: Tensor, sizes: Tensor, num_cells: int) -> Tensor:
    """Average the quantile functions of equally weighted samples of several sizes over equal cells.

    Which step of a quantile function lies on the edge of a cell follows from the size alone.

    Args:
        values: A ``C x L x n`` tensor of samples, in any order; padding is infinite.
        sizes: A ``C x 1`` tensor of the numbers of samples.
        num_cells: Number ``N`` of cells.

    Returns:
        A ``C x L x N`` tensor.
    """
    ordered = sort(values)
    # In units of 1 / (n N) both grids are integers.
    edges = torch.arange(1, num_cells + 1, device=sizes.device) * sizes
    steps = (edges - 1) // num_cells
    beyond = (steps + 1 - edges.double() / num_cells).to(values).unsqueeze(-2)
    at_edges = steps.unsqueeze(-2).expand(*values.shape[:-1], num_cells)
    integral = ordered.cumsum(-1).gather(-1, at_edges) - ordered.gather(-1, at_edges) * beyond
    zeros = torch.zeros_like(integral[..., :1])
    return (num_cells / sizes.to(values)).unsqueeze(-1) * torch.diff(integral, prepend=zeros)


def weighted_cell_quantiles(values: Tensor, weights: Tensor, num_cells: int) -> Tensor:
    """Average the quantile function of weighted samples over equal cells.

    As functions of the weights, the averages have a kink where a cumulative weight lies on the edge of
    a cell. The gradient there is the mean of the two one-sided gradients.

    Args:
        values: A ``batch_shape x n`` tensor of samples, in any order.
        weights: A tensor of non-negative weights that sum to one, broadcastable to ``values``.
        num_cells: Number ``N`` of cells.

    Returns:
        A ``batch_shape x N`` tensor.
    """
    order = argsort(values)
    ordered = values.gather(-1, order)
    weights = weights.expand(values.shape).gather(-1, order)
    knots = weights.cumsum(-1)
    integral = (weights * ordered).cumsum(-1)
    edges = torch.arange(1, num_cells, dtype=values.dtype, device=values.device) / num_cells
    edges = edges.expand(*values.shape[:-1], num_cells - 1)

    def integral_at_edges(step: Tensor) -> Tensor:
        beyond_edges = knots.gather(-1, step) - edges
        return integral.gather(-1, step) - ordered.gather(-1, step) * beyond_edges

    snap = 1e-12 if values.dtype == torch.float64 else 1e-6
    at_edges = integral_at_edges(_step_at(knots, edges - snap, right=False))
    if is_tracked(weights):
        beyond = integral_at_edges(_step_at(knots, edges + snap, right=True))
        at_edges = 0.5 * (at_edges + beyond)
    return num_cells * torch.diff(
        at_edges, dim=-1, prepend=torch.zeros_like(knots[..., :1]), append=integral[..., -1:]
    )


def _step_at(knots: Tensor, edges: Tensor, *, right: bool) -> Tensor:
    """Return the index of the step of the quantile function on which each edge lies."""
    found = torch.searchsorted(knots.detach(), edges.contiguous(), right=right)
    return found.clamp_max_(knots.shape[-1] - 1)


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
