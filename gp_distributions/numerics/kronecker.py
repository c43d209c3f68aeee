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

The log density of known entries contains :math:`\log |A| + \log |(A^{-1})_{mm}|`. By Fischer's
inequality, the second term is at most the sum over rows :math:`i` of the matrix

.. math::
    \sum_i \log |(A^{-1})_{m_i m_i}|,

and equal to it if missing entries of different rows are independent given the known ones. This is the
evidence lower bound of such an approximation. It takes a Cholesky factor for each row instead of one for
all missing entries.

Source: Rakitsch et al. 2013.
"""

from __future__ import annotations

import math
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
