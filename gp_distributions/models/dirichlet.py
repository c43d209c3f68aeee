"""Joint factorisation of covariance matrices that differ only in the noise at class members."""

from __future__ import annotations

import math
from typing import Any

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.autograd.function import once_differentiable

from gp_distributions.measures.arrays import positive


class DirichletFactors:
    r"""Cholesky factors for the covariance matrices of the targets of all classes.

    Let :math:`a` be the noise variance at the members of a class and :math:`b` that at all other
    clouds. Let :math:`\delta = b - a` and :math:`A = K + b I`, and let :math:`E` contain the columns of
    the identity matrix at the members. The covariance matrix of the class and its inverse are

    .. math::
        A - \delta E E^\top, \qquad (A - \delta E E^\top)^{-1}
        = A^{-1} + \delta A^{-1} E (I - \delta E^\top A^{-1} E)^{-1} E^\top A^{-1}.

    Args:
        prior: The ``T x T`` prior covariance matrix :math:`K` of the clouds.
        labels: The ``T`` class indices.
        noise: The ``C x T`` noise variances, which take the two values :math:`a` and :math:`b`.
    """

    def __init__(self, prior: Tensor, labels: Tensor, noise: Tensor) -> None:
        noise = noise.to(prior)
        gap = noise.max() - noise.min()
        unit = torch.eye(len(prior), dtype=prior.dtype, device=prior.device)
        factor = psd_safe_cholesky(prior + noise.max() * unit)
        self._inverse = torch.cholesky_inverse(factor)
        roots, logdets = [], []
        for c in range(len(noise)):
            members = (labels == c).nonzero().flatten()
            among = self._inverse[members]
            inner = psd_safe_cholesky(unit[members][:, members] - gap * among[:, members])
            roots.append(gap.sqrt() * torch.linalg.solve_triangular(inner, among, upper=False))
            logdets.append(inner.diagonal().log().sum())
        #: The log determinants of the matrices, a tensor of length ``C``.
        self.logdet = 2 * (factor.diagonal().log().sum() + torch.stack(logdets))
        # The inverse matrix of a class is A^-1 + R' R, with the rows of R that belong to it.
        self._roots = torch.cat(roots)
        self._of_class = torch.nn.functional.one_hot(labels.sort().values, len(noise)).mT.to(prior)

    def solve(self, right: Tensor) -> Tensor:
        """Solve the linear system of each class for its row of ``right``, a ``C x T`` tensor."""
        return right @ self._inverse + (self._of_class * (right @ self._roots.mT)) @ self._roots

    def inv_quad(self, right: Tensor) -> Tensor:
        """Return ``r' S^-1 r`` for the matrix ``S`` of each class and each row ``r``, as ``C x N``."""
        more = self._of_class @ (right @ self._roots.mT).square().mT
        return (right @ self._inverse * right).sum(-1) + more

    def sum_of_inverses(self, shares: Tensor) -> Tensor:
        """Return the sum over classes of the inverse matrix times a share, as ``T x T``."""
        weighted = (shares @ self._of_class).unsqueeze(-1) * self._roots
        return torch.addmm(self._inverse, self._roots.mT, weighted, beta=shares.sum().item())


class DirichletLogDensities(torch.autograd.Function):
    r"""Log densities of the targets of all classes at their best means, and these means.

    With the covariance matrix :math:`M_c` of the targets :math:`y_c` of a class, the mean is
    :math:`m_c = 1^\top M_c^{-1} y_c / 1^\top M_c^{-1} 1`. With the differences :math:`r_c` to it, the
    gradient of the log density :math:`p_c` needs one more matrix product:

    .. math::
        \frac{\partial \log p_c}{\partial K} = \tfrac12 \bigl(M_c^{-1} r_c r_c^\top M_c^{-1}
        - M_c^{-1}\bigr).

    Autograd would go through the factors of each class in turn.
    """

    @staticmethod
    def forward(
        ctx: Any, prior: Tensor, targets: Tensor, labels: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return two tensors of length ``C``.

        Args:
            ctx: Autograd's context.
            prior: As for :class:`DirichletFactors`, like ``labels`` and ``noise``.
            targets: The ``C x T`` targets, which are constant, like ``labels`` and ``noise``.
            labels: The ``T`` class indices.
            noise: The ``C x T`` noise variances.
        """
        ctx.factors = DirichletFactors(prior, labels, noise)
        solved, ones = ctx.factors.solve(targets), ctx.factors.solve(torch.ones_like(targets))
        means = solved.sum(-1, keepdim=True) / ones.sum(-1, keepdim=True)
        solved = solved - means * ones
        ctx.save_for_backward(solved)
        inv_quad = ((targets - means) * solved).sum(-1)
        constant = targets.shape[-1] * math.log(2 * math.pi)
        means = means.squeeze(-1)
        ctx.mark_non_differentiable(means)
        return -0.5 * (inv_quad + ctx.factors.logdet + constant), means

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, shares: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient with respect to the prior covariances."""
        (solved,) = ctx.saved_tensors
        weighted = shares.unsqueeze(-1) * solved
        inverses = ctx.factors.sum_of_inverses(shares)
        return torch.addmm(inverses, solved.mT, weighted, beta=-1).mul_(0.5), None, None, None


def dirichlet_targets(
    labels: Tensor, num_classes: int, alpha_epsilon: float, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Compute the regression targets and noise variances of :class:`ClassificationGP`.

    Args:
        labels: The ``T`` class indices.
        num_classes: Number ``C`` of classes.
        alpha_epsilon: The concentration of the classes that are not the label.
        dtype: Precision of the results.

    Returns:
        The targets and the noise variances, two ``T x C`` tensors.

    Raises:
        ValueError: If ``alpha_epsilon`` is not positive.
    """
    members = torch.nn.functional.one_hot(labels, num_classes).to(dtype)
    alpha = members + positive(alpha_epsilon, "alpha_epsilon")
    noise = (1 / alpha + 1).log()
    return alpha.log() - noise / 2, noise
