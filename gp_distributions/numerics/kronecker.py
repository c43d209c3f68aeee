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

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.numerics.linear_algebra import cholesky


def scaled_eigenvectors(row_values: Tensor, C: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`D^{-1/2} U` and the eigenvalues of :math:`A^{-1}` in the basis :math:`E`."""
    scale = noise.rsqrt().unsqueeze(-1)
    values, columns = torch.linalg.eigh(scale * C * scale.mT)
    return scale * columns, 1 / (torch.outer(row_values.clamp_min(0), values.clamp_min(0)) + 1)


@dataclass(frozen=True, eq=False)
class KroneckerSystem:
    r"""What inference needs of the covariances and of the known entries of a matrix.

    Attributes:
        rows: The eigenvectors :math:`Q`, ``N x N``.
        columns: The scaled eigenvectors :math:`D^{-1/2} U`, ``M x M``.
        gains: The eigenvalues of :math:`A^{-1}` in the basis :math:`E`, ``N x M``.
        filled: The values, with conditional means in place of missing ones, ``N x M``.
        weights: :math:`E^{-1} A^{-1}` times these values, ``N x M``.
        missing: The indices of the ``n`` missing entries, ``n x 2``.
        factor: The Cholesky factor :math:`L`, ``n x n``.
        reduction: :math:`E^{-1} R`, ``n x N x M``.
    """

    rows: Tensor
    columns: Tensor
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
        columns, gains = scaled_eigenvectors(row_values, C, noise)
        missing = values.isnan().nonzero()
        i, j = missing.unbind(-1)
        inverse = gains * (rows[i].unsqueeze(-1) * columns[j].unsqueeze(-2))
        inverse = (rows @ inverse @ columns.mT)[:, i, j]
        factor = cholesky(inverse) if len(i) else inverse
        units = values.new_zeros(len(i), *values.shape)
        one = torch.eye(len(i)).to(values)
        units[:, i, j] = torch.linalg.solve_triangular(factor, one, upper=False)
        filled = values.nan_to_num()
        start = rows @ (gains * (rows.mT @ filled @ columns)) @ columns.mT
        filled[i, j] = -torch.cholesky_solve(start[i, j].unsqueeze(-1), factor).squeeze(-1)
        return cls(
            *(rows, columns, gains, filled),
            gains * (rows.mT @ filled @ columns),
            missing,
            factor,
            gains * (rows.mT @ units @ columns),
        )

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
