r"""Linear algebra on covariance matrices and small chunks: products, roots, Cholesky factors, strips.

Operations in a single thread on the CPU, for small chunks of work without gradients.

PyTorch's threads keep spinning between operations. On few cores, this slows other work down by more
than a second thread saves in a small operation. These functions therefore call NumPy, and fall back to
PyTorch if a gradient is required or a tensor is on another device.

Functions of the entries of a large matrix, computed in strips that fit into the processor's cache.

A profile of a distance takes ten to twenty elementwise operations. On a whole matrix, each of them reads
and writes main memory, and automatic differentiation keeps their results. In strips, they read and write
the cache, and the gradient computes them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gp_distributions.rows.tensors import is_tracked
from gp_distributions.warnings import JitterWarning, warn


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product ``left @ right``."""
    if by_torch(left, right):
        return left @ right
    return torch.from_numpy(np.matmul(left.detach().numpy(), right.detach().numpy()))


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """Return ``L^-1 x`` for each vector ``x`` along the last axis of ``right``, ``... x M``."""
    # By torch: SciPy holds the lock of the interpreter, so that the threads of a pass would take turns.
    columns = torch.linalg.solve_triangular(factor, right.flatten(0, -2).mT, upper=False)
    return columns.mT.reshape(right.shape)


def concatenate(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate two tensors along their last axis."""
    if by_torch(left, right):
        return torch.cat([left, right], dim=-1)
    joined = np.concatenate([left.detach().numpy(), right.detach().numpy()], axis=-1)
    return torch.from_numpy(joined)


def put_rows(out: Tensor, index: slice | Tensor, rows: Tensor) -> None:
    """Write rows into ``out``, which must not require a gradient."""
    if by_torch(out, rows):
        out[index] = rows
    else:
        key = index if isinstance(index, slice) else index.numpy()
        out.numpy()[key] = rows.detach().numpy()


def by_torch(*tensors: Tensor) -> bool:
    """Whether tensors are on another device than the CPU, or require a gradient."""
    return is_tracked(*tensors) or not all(tensor.is_cpu for tensor in tensors)


def recomputed(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Return what a function computes from tensors; a backward pass computes it again to save memory."""
    if not is_tracked(*tensors):
        return function(*tensors)
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)


def square_root(values: Tensor, *, at_zero: float = 0.0) -> Tensor:
    """Square root whose derivative at zero, which would be infinite, is zero.

    Args:
        values: A tensor. Negative values are rounding errors and count as zero.
        at_zero: Value at zero: 0, or a positive number if the root is a divisor.

    Returns:
        A tensor of the same shape.
    """
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1.0).sqrt(), at_zero)


# Initial jitter, which is multiplied by ten until the matrix has a Cholesky factor.
_JITTER = {torch.float64: 1e-8, torch.float32: 1e-6}


def cholesky(matrix: Tensor) -> Tensor:
    """Compute lower Cholesky factors; add jitter to the diagonals of matrices that need it.

    Args:
        matrix: A ``batch_shape x N x N`` tensor.

    Returns:
        The lower triangular factors, a ``batch_shape x N x N`` tensor.

    Raises:
        NanError: If the matrix is not finite.
        NotPSDError: If the matrix is not positive definite even with the largest jitter, which is 1e-3
            in double precision and 0.1 in single precision.

    Warns:
        JitterWarning: If jitter was added.
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not bool(info.any()):
        return factor
    if not bool(matrix.isfinite().all()):
        raise NanError(
            f"Expected a finite covariance matrix, got {int((~matrix.isfinite()).sum())} of "
            f"{matrix.numel()} entries that are NaN or infinite."
        )
    jitter = torch.zeros(matrix.shape[:-1], dtype=matrix.dtype, device=matrix.device)
    smallest = _JITTER[matrix.dtype]
    for power in range(6):
        size = smallest * 10**power
        jitter = jitter.masked_fill((info > 0).unsqueeze(-1), size)
        factor, info = torch.linalg.cholesky_ex(matrix + torch.diag_embed(jitter))
        if not bool(info.any()):
            break
    else:
        raise NotPSDError(
            "Expected a positive definite covariance matrix, got one that is not, even with a jitter of "
            f"{size:.0e} on its diagonal. Kernels of distances that are not Hilbertian, of which a "
            "NotHilbertianWarning says more, have such matrices."
        )
    warn(
        "A covariance matrix is not positive definite in floating point, so a jitter of "
        f"{size:.0e} was added to its diagonal. Intervals are those of a model with that much more "
        "noise. Look for duplicate clouds, use double precision, or raise the noise.",
        JitterWarning,
    )
    return factor


def log_densities(
    differences: Tensor, covariance: Tensor, noise: Tensor | None = None, *, level: bool = False
) -> Tensor:
    r"""Log densities of centred normal distributions that share a covariance matrix.

    An unknown level with a flat prior, beside the mean, is integrated: with the covariances :math:`C`
    and :math:`b = C^{-1} 1`, the densities of :math:`e` are those at :math:`e - 1\, b^\top e / 1^\top b`
    times :math:`(2 \pi / 1^\top b)^{1/2}`.

    Args:
        differences: A ``batch_shape x N x R`` tensor, one vector in each column.
        covariance: A ``batch_shape x N x N`` tensor.
        noise: A ``batch_shape x N`` tensor, which is added to the diagonals of the matrices.
        level: Whether each vector has a level to integrate.

    Returns:
        A ``batch_shape x R`` tensor.
    """
    noise = covariance.new_zeros(covariance.shape[:-1]) if noise is None else noise
    size, columns = differences.shape[-2], differences
    if level:
        columns = torch.cat([columns, torch.ones_like(columns[..., :1])], dim=-1)
    forms, logdet = quadratic_forms(columns, covariance, noise)
    squares, logdet = forms.diagonal(dim1=-2, dim2=-1), logdet.unsqueeze(-1)
    if level:
        total = forms[..., -1:, -1]
        squares = squares[..., :-1] - forms[..., -1, :-1].square() / total
        size, logdet = size - 1, logdet + total.log()
    densities = -0.5 * (squares + logdet + size * math.log(2 * math.pi))
    return densities.to(differences)


def quadratic_forms(columns: Tensor, covariance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute :math:`X^\top K^{-1} X` and :math:`\log \det K` of a covariance matrix :math:`K`.

    The gradient with respect to :math:`K` is computed in closed form from the Cholesky factor. It is
    :math:`g K^{-1} - K^{-1} X G X^\top K^{-1}`, with the symmetric part :math:`G` of the gradient with
    respect to the forms and the gradient :math:`g` with respect to the determinant.

    Args:
        columns: The matrix :math:`X`, a ``batch_shape x N x R`` tensor.
        covariance: A ``batch_shape x N x N`` tensor.
        noise: A ``batch_shape x N`` tensor, which is added to the diagonals of the matrices.

    Returns:
        A ``batch_shape x R x R`` and a ``batch_shape`` tensor, in double precision.

    Source: Rasmussen and Williams 2006, eq. 5.9.
    """
    # In single precision, the two terms of the gradient could cancel and leave only rounding errors.
    return _QuadraticForms.apply(columns.double(), covariance.double(), noise.double())


class _QuadraticForms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, columns: Tensor, covariance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        noisy = covariance.clone()
        noisy.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor = cholesky(noisy)
        solved = torch.cholesky_solve(columns, factor)
        ctx.save_for_backward(factor, solved)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return columns.mT @ solved, logdet

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, in_forms: Tensor, in_logdet: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        factor, solved = ctx.saved_tensors
        # In place, since each copy of a large matrix takes time.
        in_covariance = torch.cholesky_inverse(factor).mul_(in_logdet[..., None, None])
        left = solved @ (in_forms + in_forms.mT)
        if left.dim() == 2:
            in_covariance.addmm_(left, solved.mT, alpha=-0.5)
        else:
            in_covariance -= 0.5 * left @ solved.mT
        return left, in_covariance, in_covariance.diagonal(dim1=-2, dim2=-1)


def absolute_value(matrices: Tensor) -> Tensor:
    r"""Absolute values of real matrices, from their singular values.

    With :math:`H = U s V^\top`, the absolute value is :math:`V s V^\top`. A square root of
    :math:`H^\top H` would lose half of the digits. The backward pass maps a symmetric gradient
    :math:`G` to :math:`2 H V [(V^\top G V)_{ij} / (s_i + s_j)] V^\top` with :math:`0 / 0 = 0`.

    Args:
        matrices: A ``batch_shape x M x N`` tensor.

    Returns:
        A ``batch_shape x N x N`` tensor of positive semi-definite matrices.
    """
    return _AbsoluteValue.apply(matrices)


class _AbsoluteValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        _, singular, rows = torch.linalg.svd(matrices, full_matrices=False)
        ctx.save_for_backward(matrices)
        return (rows.mT * singular.unsqueeze(-2)) @ rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (matrices,) = ctx.saved_tensors
        _, singular, rows = torch.linalg.svd(matrices, full_matrices=True)
        singular = torch.nn.functional.pad(singular, (0, rows.shape[-1] - singular.shape[-1]))
        gradient = (gradients[0] + gradients[0].mT) / 2
        sums = singular.unsqueeze(-1) + singular.unsqueeze(-2)
        inner = rows @ gradient @ rows.mT
        inner = torch.where(sums > 0, inner / torch.where(sums > 0, sums, 1.0), 0.0)
        return 2 * matrices @ rows.mT @ inner @ rows


# Number of entries in a strip.
_STRIP = 2**16
# Matrices of at most this many entries are not split.
_SMALL = 2**18


def upper_triangle(matrices: Tensor, *, diagonal: bool = True) -> Tensor:
    """Return the diagonal of symmetric matrices, if requested, and the entries above it.

    The entries above it are multiplied by the square root of two, because each of them counts twice.
    """
    size = matrices.shape[-1]
    row, column = torch.triu_indices(size, size, offset=1, device=matrices.device)
    above = math.sqrt(2) * matrices[..., row, column]
    if not diagonal:
        return above
    return torch.cat([matrices.diagonal(dim1=-2, dim2=-1), above], dim=-1)


def entrywise(
    function: Callable[[Tensor], Tensor], matrix: Tensor, parameters: Sequence[Tensor]
) -> Tensor:
    """Apply a function of each entry to a matrix.

    If the matrix is large, on the CPU and does not require a gradient, strips of rows are processed one
    at a time. Memory then holds the matrix, the result and one strip. The result is the same.

    Args:
        function: Function of a ``batch_shape x n x M`` tensor, for any number ``n`` of rows, that treats
            all entries alike and returns a tensor of the same last two axes.
        matrix: A ``batch_shape x N x M`` tensor.
        parameters: All tensors on which the function depends and that may require a gradient.

    Returns:
        A tensor that broadcasts with ``matrix``, ``batch_shape x N x M``.
    """
    if matrix.requires_grad or matrix.device.type != "cpu" or matrix.numel() <= _SMALL:
        return function(matrix)
    tracked = [parameter for parameter in parameters if parameter.requires_grad]
    return _Entrywise.apply(function, matrix, *tracked)


class _Entrywise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Callable[[Tensor], Tensor], matrix: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(matrix, *parameters)
        first = function(matrix[..., :1, :])
        result = first.new_empty(*first.shape[:-2], *matrix.shape[-2:])
        for rows in _strips(result):
            result[..., rows, :] = function(matrix[..., rows, :])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrix, *parameters = ctx.saved_tensors
        found = [torch.zeros_like(parameter) for parameter in parameters]
        for rows in _strips(gradient):
            with torch.enable_grad():
                strip = ctx.function(matrix[..., rows, :])
            terms = torch.autograd.grad(
                strip, parameters, gradient[..., rows, :], allow_unused=True
            )
            for total, term in zip(found, terms, strict=True):
                total += 0 if term is None else term
        return None, None, *found


def _strips(matrix: Tensor) -> Iterator[slice]:
    """Split the rows of a matrix into slices of about ``_STRIP`` entries."""
    rows = max(1, _STRIP * matrix.shape[-2] // matrix.numel())
    return (slice(start, start + rows) for start in range(0, matrix.shape[-2], rows))
