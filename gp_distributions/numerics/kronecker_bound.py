r"""A lower bound on log densities of matrices with Kronecker covariances and missing entries.

The covariance :math:`A` of the entries is that of :class:`KroneckerSystem`. Where entries :math:`m` are
missing, the log density of the others contains :math:`\log |A| + \log |(A^{-1})_{mm}|`. By Fischer's
inequality, the second term is at most the sum over rows :math:`i` of the matrix

.. math::
    \sum_i \log |(A^{-1})_{m_i m_i}|,

and equal to it if missing entries of different rows are independent given the known ones. This is the
evidence lower bound of such an approximation. It takes a Cholesky factor for each row instead of one for
all missing entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.numerics.kronecker import scaled_eigenvectors
from gp_distributions.numerics.linear_algebra import cholesky

# Error of the bound, in nats per entry, below which conjugate gradients end, and their most steps.
_ERROR, _STEPS = 1e-12, 1000


@dataclass(frozen=True, eq=False)
class KroneckerBound:
    """The bound, its gradients, and the conditional means of missing entries.

    Attributes:
        rows: The eigenvectors of the covariances of rows, ``N x N``.
        columns: The scaled eigenvectors of those of columns, ``M x M``.
        row_values: The eigenvalues of the covariances of rows.
        gains: The eigenvalues of the inverse, ``N x M``.
        filled: The values, with conditional means in place of missing ones, ``N x M``.
        weights: The inverse times these values in the basis of eigenvectors, ``N x M``.
        gappy: The indices of the ``n`` rows with missing entries.
        spread: The conditional covariances of their missing entries, in the basis of eigenvectors of
            columns, ``n x M x M``.
        log_density: The bound.
    """

    rows: Tensor
    columns: Tensor
    row_values: Tensor
    gains: Tensor
    filled: Tensor
    weights: Tensor
    gappy: Tensor
    spread: Tensor
    log_density: Tensor

    @classmethod
    def of(
        cls, values: Tensor, row_values: Tensor, rows: Tensor, C: Tensor, noise: Tensor
    ) -> KroneckerBound:
        """Compute the bound; the arguments are those of :meth:`KroneckerSystem.of`."""
        columns, gains = scaled_eigenvectors(row_values, C, noise)
        missing = values.isnan()
        gappy = missing.any(-1).nonzero().squeeze(-1)
        # The missing entries of each row first, and as many others as rows with most need none.
        number = int(missing.sum(-1).max())
        index = (~missing[gappy]).int().argsort(-1)[:, :number]
        absent = missing[gappy].gather(-1, index)
        own = columns[index] * absent.unsqueeze(-1)
        shares = rows[gappy].square() @ gains
        factor = cholesky(
            (own * shares.unsqueeze(-2)) @ own.mT + torch.diag_embed(1.0 - absent.to(gains))
        )

        def solve(matrix: Tensor) -> Tensor:
            return rows @ (gains * (rows.mT @ matrix @ columns)) @ columns.mT

        def precondition(matrix: Tensor) -> Tensor:
            parts = (matrix[gappy].gather(-1, index) * absent).unsqueeze(-1)
            parts = torch.cholesky_solve(parts, factor).squeeze(-1) * absent
            return matrix.new_zeros(matrix.shape).index_put(
                (gappy.unsqueeze(-1).expand_as(index), index), parts
            )

        filled = values.nan_to_num()
        residual = missing * -solve(filled)
        direction = change = precondition(residual)
        gain = (residual * change).sum()
        for _ in range(_STEPS):
            if not gain > _ERROR * values.numel():
                break
            image = missing * solve(direction)
            size = gain / (direction * image).sum()
            filled, residual = filled + size * direction, residual - size * image
            change, before = precondition(residual), gain
            gain = (residual * change).sum()
            direction = change + gain / before * direction
        weights = gains * (rows.mT @ filled @ columns)
        logdet = len(gains) * noise.log().sum() - gains.log().sum()
        logdet = logdet + 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum()
        known = int((~missing).sum()) * math.log(2 * math.pi)
        density = -0.5 * ((weights.square() / gains).sum() + logdet + known)
        half = torch.linalg.solve_triangular(factor, own, upper=False)
        spread = half.mT @ half
        return cls(rows, columns, row_values, gains, filled, weights, gappy, spread, density)

    @property
    def gradients(self) -> tuple[Tensor, Tensor]:
        r"""The gradients of the bound in :math:`C`, ``M x M``, and in the noise variances.

        With :math:`\alpha = A^{-1} y` and :math:`P = A^{-1} - A^{-1} W A^{-1}`, where :math:`W` has the
        conditional covariances :math:`((A^{-1})_{m_i m_i})^{-1}` as blocks, the first is

        .. math::
            \tfrac12 \Bigl(\alpha^\top K \alpha - \sum_{ii'} K_{ii'} P_{(i, \cdot), (i', \cdot)}\Bigr).

        It is computed in the basis of eigenvectors, whose derivatives are not needed.
        """
        squares = self.rows[self.gappy].square()

        def contracted(values: Tensor) -> Tensor:
            inner = (self.weights * values).mT @ self.weights
            inner = inner - torch.diag((self.gains * values).sum(0))
            products = self.gains.mT @ ((squares * values.mT).unsqueeze(-1) * self.gains)
            inner = inner + (self.spread * products).sum(0)
            return 0.5 * self.columns @ inner @ self.columns.mT

        values = self.row_values.unsqueeze(-1)
        return contracted(values), contracted(torch.ones_like(values)).diagonal()
