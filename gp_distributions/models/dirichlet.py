"""Joint factorisation of covariance matrices that differ only in the noise at class members."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

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
        self._gap = noise.max() - noise.min()
        like: dict[str, Any] = {"dtype": prior.dtype, "device": prior.device}
        self._factor = psd_safe_cholesky(prior + noise.max() * torch.eye(len(prior), **like))
        self._inverse = torch.cholesky_inverse(self._factor)
        self._classes = [(labels == c).nonzero().flatten() for c in range(len(noise))]
        # A single look-up has one T x T gradient; one look-up per class would have C of them.
        pairs = torch.cat([torch.cartesian_prod(members, members) for members in self._classes])
        sizes = [len(members) for members in self._classes]
        blocks = self._inverse[pairs[:, 0], pairs[:, 1]].split([size**2 for size in sizes])
        self._inner = [
            torch.linalg.cholesky(torch.eye(size, **like) - self._gap * block.view(size, size))
            for size, block in zip(sizes, blocks, strict=True)
        ]

    def logdet(self) -> Tensor:
        """Return the log determinant of the matrix of each class, a tensor of length ``C``."""
        inner = torch.stack([factor.diagonal().log().sum() for factor in self._inner])
        return 2 * (self._factor.diagonal().log().sum() + inner)

    def solve(self, right: Tensor) -> Tensor:
        """Solve the linear system of each class for its row of ``right``, a ``C x T`` tensor."""
        solved = right @ self._inverse
        more = []
        for s, members, factor in zip(solved, self._classes, self._inner, strict=True):
            inner = torch.cholesky_solve(s[members].unsqueeze(-1), factor).squeeze(-1)
            more.append(inner @ self._inverse[members])
        return solved + self._gap * torch.stack(more)

    def inv_quad(self, right: Tensor) -> Tensor:
        """Return ``r' S^-1 r`` for the matrix ``S`` of each class and each row ``r``, as ``C x N``."""
        solved = right @ self._inverse
        more = []
        for members, factor in zip(self._classes, self._inner, strict=True):
            at = torch.linalg.solve_triangular(factor, solved[:, members].T, upper=False)
            more.append(at.square().sum(0))
        return (right * solved).sum(-1) + self._gap * torch.stack(more)


def dirichlet_targets(members: Tensor, alpha_epsilon: float) -> tuple[Tensor, Tensor]:
    """Compute the regression targets and noise variances of :class:`ClassificationGP`.

    Args:
        members: A ``T x C`` tensor of class indicators.
        alpha_epsilon: The concentration of the classes that are not the label.

    Returns:
        The targets and the noise variances, two ``T x C`` tensors.

    Raises:
        ValueError: If ``alpha_epsilon`` is not positive.
    """
    alpha = members + positive(alpha_epsilon, "alpha_epsilon")
    noise = (1 / alpha + 1).log()
    return alpha.log() - noise / 2, noise
