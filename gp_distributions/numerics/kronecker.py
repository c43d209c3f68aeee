r"""Normal distributions of matrices with covariances :math:`C \otimes K` and noise of each column.

The covariance of the entries :math:`(i, j)` and :math:`(i', j')` of an ``N x M`` matrix is

.. math::
    A_{(i, j), (i', j')} = K_{ii'} C_{jj'} + d_j [i = i', j = j'].

With :math:`K = Q S Q^\top`, :math:`D^{-1/2} C D^{-1/2} = U \Lambda U^\top` and
:math:`E = D^{-1/2} U \otimes Q`, the inverse is :math:`A^{-1} = E (\Lambda \otimes S + I)^{-1} E^\top`:
the decompositions of an ``N x N`` and an ``M x M`` matrix serve :math:`NM` entries. Where entries
:math:`m` are missing, the inverse of the covariance of the others, padded with zeros, is
:math:`A^{-1} - R R^\top` with :math:`R = A^{-1}_{:, m} L^{-\top}` and
:math:`L L^\top = (A^{-1})_{mm}`.

Source: Rakitsch et al. 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.numerics.linear_algebra import cholesky


@dataclass(frozen=True, eq=False)
class KroneckerSystem:
    r"""What inference needs of the covariances and of the known entries of a matrix.

    Attributes:
        rows: The eigenvectors :math:`Q`, ``N x N``.
        columns: The scaled eigenvectors :math:`D^{-1/2} U`, ``M x M``.
        row_values: The eigenvalues :math:`S`.
        noise: The noise variances :math:`d`.
        gains: The eigenvalues of :math:`A^{-1}` in the basis :math:`E`, ``N x M``.
        filled: The values, with conditional means in place of missing ones, ``N x M``.
        weights: :math:`E^{-1} A^{-1}` times these values, ``N x M``.
        missing: The indices of the ``n`` missing entries, ``n x 2``.
        factor: The Cholesky factor :math:`L`, ``n x n``.
        reduction: :math:`E^{-1} R`, ``n x N x M``.
    """

    rows: Tensor
    columns: Tensor
    row_values: Tensor
    noise: Tensor
    gains: Tensor
    filled: Tensor
    weights: Tensor
    missing: Tensor
    factor: Tensor
    reduction: Tensor

    @classmethod
    def of(
        cls, values: Tensor, row_values: Tensor, rows: Tensor, C: Tensor, noise: Tensor
    ) -> KroneckerSystem:
        """Decompose the covariances and solve for the values.

        Args:
            values: An ``N x M`` tensor, NaN where an entry is missing.
            row_values: The eigenvalues of the covariances of rows.
            rows: Their eigenvectors, ``N x N``.
            C: The covariances of columns, ``M x M``.
            noise: The noise variances of columns.
        """
        scale = noise.rsqrt().unsqueeze(-1)
        column_values, columns = torch.linalg.eigh(scale * C * scale.mT)
        columns, row_values = scale * columns, row_values.clamp_min(0)
        gains = 1 / (torch.outer(row_values, column_values.clamp_min(0)) + 1)
        missing = values.isnan().nonzero()
        i, j = missing.unbind(-1)
        inverse = gains * (rows[i].unsqueeze(-1) * columns[j].unsqueeze(-2))
        inverse = (rows @ inverse @ columns.mT)[:, i, j]
        factor = cholesky(inverse) if len(i) else inverse
        units = values.new_zeros(len(i), *values.shape)
        units[:, i, j] = torch.linalg.inv(factor)
        filled = values.nan_to_num()
        start = rows @ (gains * (rows.mT @ filled @ columns)) @ columns.mT
        filled[i, j] = -torch.cholesky_solve(start[i, j].unsqueeze(-1), factor).squeeze(-1)
        return cls(
            *(rows, columns, row_values, noise, gains, filled),
            gains * (rows.mT @ filled @ columns),
            missing,
            factor,
            gains * (rows.mT @ units @ columns),
        )

    @property
    def log_density(self) -> Tensor:
        """The log density of the known entries."""
        known = self.gains.numel() - len(self.missing)
        logdet = len(self.gains) * self.noise.log().sum() - self.gains.log().sum()
        logdet = logdet + 2 * self.factor.diagonal().log().sum()
        quadratic = (self.weights.square() / self.gains).sum()
        return -0.5 * (quadratic + logdet + known * math.log(2 * math.pi))

    @property
    def gradients(self) -> tuple[Tensor, Tensor]:
        r"""The gradients of the log density in :math:`C`, ``M x M``, and in the noise variances.

        With :math:`\alpha = A^{-1} y` and :math:`P = A^{-1} - R R^\top`, the first is

        .. math::
            \tfrac12 \Bigl(\alpha^\top K \alpha - \sum_{ii'} K_{ii'} P_{(i, \cdot), (i', \cdot)}\Bigr).

        It is computed in the basis of eigenvectors, whose derivatives are not needed.
        """
        parts = torch.cat([self.weights.unsqueeze(0), self.reduction])

        def contracted(values: Tensor) -> Tensor:
            inner = (parts * values).flatten(0, 1).mT @ parts.flatten(0, 1)
            inner = inner - torch.diag((self.gains * values).sum(0))
            return 0.5 * self.columns @ inner @ self.columns.mT

        values = self.row_values.unsqueeze(-1)
        return contracted(values), contracted(torch.ones_like(values)).diagonal()

    def left_out(self) -> tuple[Tensor, Tensor]:
        """Predict each row, noise included, from the known entries of all others.

        Returns:
            The means, ``N x M``, and the covariances, ``N x M x M``.
        """
        spread = self.rows.square() @ self.gains
        precision = (self.columns * spread.unsqueeze(-2)) @ self.columns.mT
        reduction = self.rows @ self.reduction @ self.columns.mT
        precision = precision - torch.einsum("kij,kil->ijl", reduction, reduction)
        # Precisions so far are those of known entries; those of the other entries of a row are added.
        for row in self.missing[:, 0].unique():
            own = self.missing[:, 0] == row
            within = torch.cholesky_inverse(self.factor)[own][:, own]
            upper = torch.linalg.solve_triangular(self.factor.mT, reduction[:, row], upper=True)
            precision[row] += upper[own].mT @ torch.linalg.solve(within, upper[own])
        covariances = torch.cholesky_inverse(cholesky(precision))
        solved = self.rows @ self.weights @ self.columns.mT
        return self.filled - (covariances @ solved.unsqueeze(-1)).squeeze(-1), covariances
