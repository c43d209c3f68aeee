r"""Embedding kernels between Gaussians in closed form: :math:`\mathrm E\,k(X, Y)` of independent draws.

A Gaussian is a point with ``d + d*d`` coordinates: the mean, then the row-major covariance.

Source: Muandet et al. 2012, table 1, whose term of degree 3 should read
:math:`6 m_i^\top \Sigma_j \Sigma_i m_j`. Its linear entry has a term
:math:`\delta_{ij} \operatorname{tr} \Sigma_i`, the variance of one draw, which independent draws do not
have: it is left out here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import (
    EmbeddingKernel,
    GaussianKernel,
    PolynomialKernel,
)
from gp_distributions.rows.gaussians import split_gaussians


def gaussian_expectation(kernel: EmbeddingKernel, dim: int) -> EmbeddingKernel | None:
    """Return the kernel between Gaussians, or ``None`` if there is no closed form.

    Args:
        kernel: Embedding kernel, whose expectation over two Gaussians is the kernel between them.
        dim: Dimension ``d`` of the Gaussians.
    """
    if isinstance(kernel, GaussianKernel):
        return _Expectation(dim, _gaussian, 2 * dim * (dim + 1))
    if isinstance(kernel, PolynomialKernel):
        polynomial = partial(_polynomial, kernel.degree)
        return _Expectation(dim, polynomial, 2 * dim if kernel.degree == 3 else 1)
    return None


class _Expectation(EmbeddingKernel):
    """Kernel between Gaussians that is given as a function of their means and covariances."""

    on_arrays = False

    def __init__(self, dim: int, function: Callable[..., Tensor], workspace: int) -> None:
        self.dim = dim
        self.function = function
        self.workspace = workspace

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Evaluate the kernel at all pairs of Gaussians."""
        return self.function(*split_gaussians(x, self.dim), *split_gaussians(y, self.dim))


def _gaussian(mean1: Tensor, covariance1: Tensor, mean2: Tensor, covariance2: Tensor) -> Tensor:
    r"""Expectation of the Gaussian kernel, :math:`|C|^{-1/2} \exp(-\delta^\top C^{-1} \delta / 2)`.

    Here :math:`\delta = m - m'` and :math:`C = S + S' + I`.
    """
    identity = torch.eye(mean1.shape[-1], dtype=mean1.dtype, device=mean1.device)
    factor = torch.linalg.cholesky(covariance1.unsqueeze(-3) + covariance2.unsqueeze(-4) + identity)
    difference = (mean1.unsqueeze(-2) - mean2.unsqueeze(-3)).unsqueeze(-1)
    whitened = torch.linalg.solve_triangular(factor, difference, upper=False).squeeze(-1)
    log_root = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.exp(-0.5 * whitened.square().sum(-1) - log_root)


def _polynomial(
    degree: int, mean1: Tensor, covariance1: Tensor, mean2: Tensor, covariance2: Tensor
) -> Tensor:
    r"""Expectation of the polynomial kernel of degree 1, 2 or 3.

    The expectations are :math:`t`, :math:`(t + 1)^2 + q` and
    :math:`(t + 1)^3 + 3 (t + 1) q + 6 m^\top S' S m'`, where :math:`t = \langle m, m' \rangle` and
    :math:`q = m^\top S' m + m'^\top S m' + \mathrm{tr}\, S S'`.
    """
    inner = mean1 @ mean2.mT
    if degree == 1:
        return inner
    # Inner product of the second moments m m' + S, minus the inner product of the m m'.
    second1, second2 = (
        (mean.unsqueeze(-1) * mean.unsqueeze(-2) + covariance).flatten(-2)
        for mean, covariance in ((mean1, covariance1), (mean2, covariance2))
    )
    mixed = second1 @ second2.mT - inner.square()
    if degree == 2:
        return (inner + 1).square() + mixed
    crossed1 = torch.einsum("...jab,...ib->...ija", covariance2, mean1)  # S' m
    crossed2 = torch.einsum("...iab,...jb->...ija", covariance1, mean2)  # S m'
    cubic = (crossed1 * crossed2).sum(-1)
    return (inner + 1) ** 3 + 3 * (inner + 1) * mixed + 6 * cubic
