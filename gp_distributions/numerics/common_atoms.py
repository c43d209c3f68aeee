r"""Inner products of mean embeddings of clouds that share their atoms, as images on one grid do.

With weights :math:`W` and the kernel matrix :math:`K` of the atoms, the inner products are
:math:`W K W^\top`. For the Gaussian kernel on a grid, :math:`K` is a Kronecker product of one matrix per
axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gp_distributions.numerics.embedding_kernels import (
    GaussianKernel,
    IsotropicKernel,
    PairFunction,
    squares_by_differences,
)
from gp_distributions.numerics.single_thread import matmul

# Number of entries of the kernel matrix that are computed at a time.
_STRIP = 2**22

Operator = Callable[[Tensor], Tensor]


def common_atoms(x1: Tensor, x2: Tensor) -> Tensor | None:
    """Return the atoms that all clouds share, if the clouds have the same atoms in the same order.

    Args:
        x1: A ``batch_shape x N x n x d`` tensor of atoms.
        x2: A ``batch_shape x M x m x d`` tensor of atoms.

    Returns:
        An ``n x d`` tensor without a gradient, or ``None`` if the clouds differ in their atoms.
    """
    first = x1.detach()[(0,) * (x1.dim() - 2)]
    last = x2.detach()[(-1,) * (x2.dim() - 2)]
    if not torch.equal(first, last):  # cheap test that rejects nearly all other clouds
        return None
    return first if bool((x1 == first).all() & (x2 == first).all()) else None


def common_inner_products(
    kernel: IsotropicKernel, support: Tensor, x1: Tensor, w1: Tensor, x2: Tensor, w2: Tensor
) -> Tensor:
    """Inner products of all pairs of mean embeddings of clouds on one support.

    First derivatives are exact, including those with respect to the atoms of each cloud. Second
    derivatives with respect to the atoms are not exact.

    Args:
        kernel: Kernel on the atoms.
        support: An ``n x d`` tensor, the atoms that all clouds share.
        x1: A ``batch_shape x N x n x d`` tensor of atoms, all equal to ``support``.
        w1: A ``batch_shape x N x n`` tensor of weights.
        x2: A ``batch_shape x M x n x d`` tensor of atoms, all equal to ``support``.
        w2: A ``batch_shape x M x n`` tensor of weights.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    support = support - support.mean(0)
    smooth, slope = _operators(kernel, support)
    products = matmul(smooth(w1), w2.mT)
    if torch.is_grad_enabled() and x1.requires_grad:
        products = products + _first_order(slope, support, x1, w1, w2)
    if torch.is_grad_enabled() and x2.requires_grad:
        products = products + _first_order(slope, support, x2, w2, w1).mT
    return products


def _first_order(slope: Operator, support: Tensor, x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Return the first-order change of the inner products as the atoms ``x`` leave the support.

    Its value is zero, but its gradient is not: the derivative of ``k(x_i, u_j)`` with respect to
    ``x_i`` is ``S_ij (x_i - u_j)``, where ``slope`` multiplies by the matrix ``S``.
    """
    moves = (w.unsqueeze(-1) * (x - x.detach())).movedim(-1, 0)
    coordinates = support.T
    along = torch.einsum("k...n,kn->...n", moves, coordinates)
    slopes = slope(torch.cat([along.unsqueeze(0), moves]))
    change = slopes[0] @ v.mT
    for k, coordinate in enumerate(coordinates):
        change = change - slopes[k + 1] @ (coordinate * v).mT
    return change


def _operators(kernel: IsotropicKernel, support: Tensor) -> tuple[Operator, Operator]:
    """Return functions that multiply by the kernel matrix and by its slope.

    The slope is twice the derivative of the kernel with respect to the squared distance.
    """
    if isinstance(kernel, GaussianKernel):
        grid = _grid(support)
        if grid is not None:
            return lambda w: _kronecker(w, *grid), lambda w: -_kronecker(w, *grid)

    def slope(x: Tensor, y: Tensor) -> Tensor:
        squared = squares_by_differences(x, y)
        with torch.enable_grad():
            squared.requires_grad_()
            (gradient,) = torch.autograd.grad(kernel.profile(squared).sum(), squared)
        return 2 * gradient

    return partial(_strips, kernel.pairs, support), partial(_strips, slope, support)


def _strips(pairs: PairFunction, support: Tensor, w: Tensor) -> Tensor:
    """Multiply weights by the matrix of a function of all pairs of atoms, in strips of columns."""

    def strip(w: Tensor, columns: Tensor) -> Tensor:
        return matmul(w, pairs(support, columns))

    flat = w.flatten(0, -2)
    parts = [
        checkpoint(strip, flat, columns, use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled() and w.requires_grad
        else strip(flat, columns)
        for columns in support.split(max(1, _STRIP // len(support)))
    ]
    return torch.cat(parts, dim=-1).unflatten(0, w.shape[:-1])


def _grid(support: Tensor) -> tuple[list[Tensor], Tensor] | None:
    """Return the values on each axis of a grid, and the order that sorts the atoms in row-major order.

    Returns ``None`` if the atoms are not a grid, that is, a Cartesian product of values.
    """
    axes, order = [], support.new_zeros(len(support), dtype=torch.int64)
    for coordinates in support.unbind(-1):
        values, index = coordinates.unique(return_inverse=True)
        order = order * len(values) + index
        axes.append(values)
    sizes = [len(values) for values in axes]
    complete = torch.tensor(sizes, dtype=torch.float64).prod() == len(support)
    if not complete or max(sizes) == len(support) or len(order.unique()) < len(order):
        return None
    return axes, order.argsort()


def _kronecker(w: Tensor, axes: list[Tensor], order: Tensor) -> Tensor:
    """Multiply weights by the Gaussian kernel matrix of a grid, one axis after another."""
    grid = w[..., order].unflatten(-1, [len(values) for values in axes])
    for values in axes:
        factor = torch.exp(-0.5 * (values.unsqueeze(-1) - values).square())
        grid = torch.tensordot(grid, factor, dims=([-len(axes)], [0]))  # moves the axis to the end
    return grid.flatten(-len(axes))[..., order.argsort()]
