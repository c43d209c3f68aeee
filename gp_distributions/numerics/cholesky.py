"""Cholesky factors of covariance matrices, independent of the settings of linear_operator."""

from __future__ import annotations

import math
from typing import Any

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.warnings import JitterWarning, warn

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
            f"{size:.0e} on its diagonal."
        )
    warn(
        "A covariance matrix is not positive definite in floating point, so a jitter of "
        f"{size:.0e} was added to its diagonal. Intervals are those of a model with that much more "
        "noise. Look for duplicate clouds, use double precision, or raise the noise.",
        JitterWarning,
    )
    return factor


def log_densities(differences: Tensor, covariance: Tensor, noise: Tensor | None = None) -> Tensor:
    r"""Log densities of centred normal distributions that share a covariance matrix.

    The gradient with respect to the covariance matrix :math:`K` is computed in closed form from the
    Cholesky factor: with :math:`\alpha = K^{-1} x` it is :math:`(\alpha \alpha^\top - K^{-1}) / 2`.

    Args:
        differences: A ``batch_shape x N x R`` tensor, one vector :math:`x` in each column.
        covariance: A ``batch_shape x N x N`` tensor.
        noise: A ``batch_shape x N`` tensor, which is added to the diagonals of the matrices.

    Returns:
        A ``batch_shape x R`` tensor.

    Source: Rasmussen and Williams 2006, eq. 5.9.
    """
    # In single precision, the two terms of the gradient could cancel and leave only rounding errors.
    noise = covariance.new_zeros(covariance.shape[:-1]) if noise is None else noise
    double = differences.double(), covariance.double(), noise.double()
    densities: Tensor = _LogDensities.apply(*double)
    return densities.to(differences)


class _LogDensities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, differences: Tensor, covariance: Tensor, noise: Tensor) -> Tensor:
        factor = cholesky(_noisy(covariance, noise))
        solved = torch.cholesky_solve(differences, factor)
        ctx.save_for_backward(differences, covariance, noise, factor, solved)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
        constant = differences.shape[-2] * math.log(2 * math.pi)
        return -0.5 * ((differences * solved).sum(-2) + logdet + constant)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        differences, covariance, noise, factor, solved = ctx.saved_tensors
        gradient = gradients[0].unsqueeze(-2)
        total = gradient.sum(-1, keepdim=True)
        if torch.is_grad_enabled():  # second derivatives need a graph
            factor = torch.linalg.cholesky(_noisy(covariance, noise))
            solved = torch.cholesky_solve(differences, factor)
            inverse = torch.cholesky_inverse(factor)
            in_covariance = 0.5 * ((gradient * solved) @ solved.mT - total * inverse)
        else:
            # In place, since each copy of a large matrix takes time.
            in_covariance = torch.cholesky_inverse(factor).mul_(-0.5 * total)
            _add_product(in_covariance, 0.5 * gradient * solved, solved)
        return -gradient * solved, in_covariance, in_covariance.diagonal(dim1=-2, dim2=-1)


def _add_product(matrices: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left @ right.mT`` to ``batch_shape x N x N`` matrices in place."""
    if matrices.dim() == 2:
        matrices.addmm_(left, right.mT)
    else:
        matrices += left @ right.mT


def _noisy(covariance: Tensor, noise: Tensor) -> Tensor:
    """Return a copy of matrices with noise added to their diagonals."""
    noisy = covariance.clone()
    noisy.diagonal(dim1=-2, dim2=-1).add_(noise)
    return noisy
