"""Distances between all pairs of feature vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy
import torch
from torch import Tensor

from gp_distributions.numerics.linear_algebra import matmul, recomputed
from gp_distributions.rows.tensors import is_tracked

# Number of elements in a strip of columns; strips are processed one at a time.
_STRIP = 2**21
# Number of multiplications up to which PyTorch computes a product. The threads of NumPy's BLAS stay busy
# for a while after each, so that fits, which make many small products, took twice as long.
_SMALL = 2**28
# Number of rows in a strip of a symmetric matrix.
_ROWS = 128
# Number of differences in a strip of a matrix of distances; they should fit the cache.
_DIFFERENCES = 2**17


def squared_euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """Squared Euclidean distances between rows, never negative.

    They come from inner products, and from differences between rows so close that inner products would
    lose half of the digits.

    Args:
        x1: A ``batch_shape x N x D`` tensor.
        x2: A ``batch_shape x M x D`` tensor. Passing ``x1`` itself gives an exactly symmetric result
            with a zero diagonal at half the cost.

    Returns:
        A ``batch_shape x N x M`` tensor.
    """
    if x1 is not x2:
        return squared_euclidean_to(x2)(x1)
    inner = _centred_gram(x2)
    squares = inner.diagonal(dim1=-2, dim2=-1).clone()
    # Adding the squares first gives both halves of the matrix the same rounding errors.
    sums = squares.unsqueeze(-1) + squares.unsqueeze(-2)
    squared = zero_diagonal(sums.sub_(inner, alpha=2).clamp_min_(0))
    return _with_differences(squared, squares, x2, x2)


def squared_euclidean_to(x2: Tensor) -> Callable[[Tensor], Tensor]:
    """Return :func:`squared_euclidean` as a function of ``x1``, which can be called many times."""
    # The mean of all rows cancels in the distances; subtracting it first avoids loss of digits.
    centre = x2.detach().mean(dim=-2, keepdim=True)
    centred2 = x2 - centre
    squares2 = _squared_norms(centred2).unsqueeze(-2)

    def squared(x1: Tensor) -> Tensor:
        centred1 = x1 - centre
        inner = _inner_products(centred1, centred2)
        squares1 = _squared_norms(centred1)
        sums = squares1.unsqueeze(-1) + squares2
        return _with_differences(sums.sub_(inner, alpha=2).clamp_min_(0), squares1, x1, x2)

    return squared


def _with_differences(squared: Tensor, squares1: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """Replace squared distances that rounding errors of inner products reach by sums of differences.

    Args:
        squared: A ``batch_shape x N x M`` tensor of squared distances, symmetric if ``x1 is x2``.
        squares1: The squared norms of the first rows, from which squared distances were subtracted.
        x1: The first rows, without loss of digits.
        x2: The second rows.
    """
    least = 2 * math.sqrt(torch.finfo(squared.dtype).eps) * squares1.detach()
    close = squared.detach() < least.unsqueeze(-1)
    symmetric = x1 is x2
    close = close.triu(1) if symmetric else close
    if not bool(close.any()):
        return squared
    *batch, row, column = close.nonzero(as_tuple=True)
    places, values = (*batch, row, column), []
    x1, x2 = (x.expand(*squared.shape[:-2], *x.shape[-2:]) for x in (x1, x2))
    for part in zip(
        *(index.split(max(1, _STRIP // x2.shape[-1])) for index in places), strict=True
    ):
        *batch, row, column = part
        values.append((x1[(*batch, row)] - x2[(*batch, column)]).square().sum(-1))
    found = torch.cat(values)
    if symmetric:
        other_half = (*places[:-2], places[-1], places[-2])
        places = tuple(torch.cat(pair) for pair in zip(places, other_half, strict=True))
        found = found.repeat(2)
    # Without gradients, a second matrix would be memory for nothing.
    put = squared.index_put if squared.requires_grad or found.requires_grad else squared.index_put_
    return put(places, found)


def manhattan(x1: Tensor, x2: Tensor) -> Tensor:
    """Sums of absolute differences between rows, with shapes as in :func:`squared_euclidean`.

    The subgradient of the absolute value at zero is zero.
    """
    distances = all_pairs(partial(torch.cdist, p=1.0), x1, x2)
    return zero_diagonal(distances) if x1 is x2 and x1.dim() > 2 else distances


def chi_squared(x1: Tensor, x2: Tensor) -> Tensor:
    """Sums of ``(a - b)**2 / (a + b)`` over features of corresponding rows, which are non-negative.

    Where both features are zero, the summand and its gradient are zero.
    """
    difference, total = x1 - x2, x1 + x2
    # The ratio is at most one, and its gradient is finite even where squares would underflow.
    ratio = difference / total.masked_fill(total < torch.finfo(total.dtype).tiny, 1)
    return (difference * ratio).sum(-1)


def pairs_in_strips(paired: Callable[[Tensor, Tensor], Tensor], x1: Tensor, x2: Tensor) -> Tensor:
    """Compute distances of all pairs of rows by a function of corresponding rows, in bounded memory.

    The backward pass computes each strip again. Shapes are those of :func:`squared_euclidean`.
    """

    def strip(few: Tensor, x2: Tensor) -> Tensor:
        return paired(few.unsqueeze(-2), x2.unsqueeze(-3))

    def strips(x1: Tensor, x2: Tensor) -> Tensor:
        parts = x1.split(max(1, _DIFFERENCES // max(1, x2.numel())), dim=-2)
        return torch.cat([recomputed(strip, part, x2) for part in parts], dim=-2)

    return all_pairs(strips, x1, x2)


def all_pairs(distances: Callable[[Tensor, Tensor], Tensor], x1: Tensor, x2: Tensor) -> Tensor:
    """Compute distances between all pairs of rows, each once if ``x1`` is ``x2`` without batch axes."""
    if x2.dim() > 2:
        return distances(x1, x2)
    if x1 is not x2:
        # As one set of rows, since a function could copy x2 for every batch of x1.
        return distances(x1.flatten(0, -2), x2).unflatten(0, x1.shape[:-1])
    # Strips of the upper triangle.
    strips = [
        torch.nn.functional.pad(distances(x1[i : i + _ROWS], x1[i:]), (i, 0))
        for i in range(0, len(x1), _ROWS)
    ]
    upper = torch.cat(strips).triu(1)
    return upper + upper.T


def without_rounding(distances: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """Stop the gradients of distances that consist only of rounding errors.

    The gradient of such a distance is a sum of random signs, which a square root of the distance would
    magnify.

    Args:
        distances: Sums of absolute differences between ``x1`` and ``x2``. A distance loses its gradient
            if it is at most 64 rounding errors of the corresponding sums of absolute values.
        x1: A tensor of features, with one axis more than ``distances``.
        x2: A tensor of features, with as many axes as ``x1``.

    Returns:
        The distances, with the same values.
    """
    if not is_tracked(distances):
        return distances
    fixed = distances.detach()
    sizes = x1.detach().abs().sum(-1) + x2.detach().abs().sum(-1)
    return torch.where(fixed <= 64 * torch.finfo(fixed.dtype).eps * sizes, fixed, distances)


def mirrored(matrix: Tensor) -> Tensor:
    """Replace the lower half of a square matrix by its upper half."""
    return matrix.triu() + matrix.triu(1).mT


def zero_diagonal(matrix: Tensor) -> Tensor:
    """Replace the diagonal of a square matrix by exact zeros."""
    size = matrix.shape[-1]
    return matrix.masked_fill(torch.eye(size, dtype=torch.bool, device=matrix.device), 0)


def _squared_norms(x: Tensor) -> Tensor:
    return torch.einsum("...d,...d->...", x, x)  # several times faster than squaring and summing


def _centred_gram(x: Tensor) -> Tensor:
    """Compute the exactly symmetric matrix of inner products of centred rows."""
    if x.device.type != "cpu" or is_tracked(x) or x.dim() != 2 or x.numel() * len(x) <= _SMALL:
        centred = x - x.detach().mean(dim=-2, keepdim=True)
        return mirrored(centred @ centred.mT)
    # BLAS computes one triangle, in strips of columns that fit the processor's cache. NumPy calls BLAS
    # here instead of PyTorch, whose idle threads would compete with those of BLAS.
    array = x.detach().numpy()
    size = max(64, _STRIP // len(x))
    syrk = scipy.linalg.get_blas_funcs("syrk", dtype=array.dtype)
    upper = np.zeros((len(x), len(x)), dtype=array.dtype, order="F")
    for start in range(0, array.shape[1], size):
        strip = array[:, start : start + size]
        strip = strip - strip.mean(0)
        upper = syrk(1.0, strip.T, beta=1.0, c=upper, trans=1, overwrite_c=1)
    gram = upper + upper.T
    np.fill_diagonal(gram, upper.diagonal())
    return torch.from_numpy(gram)


def _inner_products(x1: Tensor, x2: Tensor) -> Tensor:
    if x2.dim() != 2:
        return x1 @ x2.mT
    flat = x1.flatten(0, -2)
    product = flat @ x2.T if flat.numel() * len(x2) <= _SMALL else matmul(flat, x2.T)
    return product.unflatten(0, x1.shape[:-1])


def column_products(columns: Tensor) -> Tensor:
    """Return the exactly symmetric matrix ``columns^T columns``, without gradients.

    Args:
        columns: An ``N x K`` tensor.

    Returns:
        A ``K x K`` tensor.
    """
    if columns.device.type != "cpu":
        return mirrored(columns.mT @ columns)
    array = columns.detach().contiguous().numpy()
    syrk = scipy.linalg.get_blas_funcs("syrk", dtype=array.dtype)
    # BLAS stores matrices by columns: the lower half of its result is the upper half of this one.
    products = torch.from_numpy(syrk(1.0, array.T, lower=1).T)
    # In place, as there may be no memory for another matrix of this size.
    for start in range(0, len(products), _ROWS):
        stop = start + _ROWS
        products[start:stop, start:stop] = mirrored(products[start:stop, start:stop])
        products[stop:, start:stop] = products[start:stop, stop:].mT
    return products
