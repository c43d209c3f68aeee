r"""The collapsed sparse Gaussian process: sums over clouds, and what follows from them.

Let :math:`Z` be ``M`` inducing clouds, :math:`L L^\top = K_{ZZ} + \delta I` and
:math:`\phi(P) = L^{-1} k(Z, P)`. Let the noise variance of cloud ``i`` be :math:`\tau \rho_i`. The
posterior and a lower bound of the marginal likelihood depend on the training clouds only through sums
over clouds, which are added piece by piece:

.. math::
    G = \sum_i \rho_i^{-1} \binom{\phi_i}{1, y_i} \binom{\phi_i}{1, y_i}^\top, \qquad
    \sum_i \rho_i^{-1} \left( k(P_i, P_i) - |\phi_i|^2 \right), \qquad \sum_i \log \rho_i, \qquad T.

Source: Titsias 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, embedded, rows_of
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.numerics.linear_algebra import cholesky, solve_lower
from gp_distributions.numerics.pairwise import column_products


@dataclass(frozen=True, eq=False)
class InducingFeatures:
    r"""The features :math:`\phi(P) = L^{-1} k(Z, P)`, in double precision.

    Args:
        covar_module: A kernel on rows.
        rows: The rows of the inducing clouds, ``M x width``, in double precision.
        factor: The lower triangular factor ``L``, ``M x M``.
        dtype: The precision in which clouds are embedded and compared with the inducing clouds.
    """

    covar_module: Kernel
    rows: Tensor
    factor: Tensor
    dtype: torch.dtype = torch.float64

    def __call__(self, rows: Rows) -> Tensor:
        """Return the features of ``... x N x width`` rows, a ``... x N x M`` tensor."""
        rows = rows if rows_of(rows).dtype == self.dtype else rows_of(rows).to(self.dtype)
        across = covariance(self.covar_module, embedded(rows), self._inducing)
        return solve_lower(self.factor, across.double())

    def residual(self, rows: Rows, phi: Tensor) -> Tensor:
        r"""Return :math:`k(P, P) - |\phi(P)|^2` of ``N x width`` rows, at least 0."""
        prior = covariance(self.covar_module, rows, diag=True)
        return (prior - squares(phi)).clamp_min(0)

    @cached_property
    def _inducing(self) -> EmbeddedRows:
        return EmbeddedRows(self.rows.to(self.dtype), prepared=True)


@dataclass(frozen=True, eq=False)
class ExplicitFeatures:
    """The features of a kernel that is their inner product, in double precision.

    Args:
        covar_module: A kernel with random features.
    """

    covar_module: ExpectedKernel
    dtype: ClassVar[torch.dtype] = torch.float64

    def __call__(self, rows: Rows) -> Tensor:
        """Return the features of ``... x N x width`` rows, a ``... x N x M`` tensor."""
        return self.covar_module.features(rows_of(rows).double())

    def residual(self, rows: Rows, phi: Tensor) -> Tensor:
        """Return what the features leave of the variances of ``N`` rows, which is nothing."""
        return phi.new_zeros(len(phi))


Features: TypeAlias = InducingFeatures | ExplicitFeatures


@dataclass(frozen=True, eq=False)
class CollapsedSums:
    r"""Sums over clouds, each divided by the relative noise :math:`\rho_i` of the cloud.

    The axis ``P`` has length 1 if all outputs share the noise, and else one entry for each output, with
    ``R = 1`` output each.

    Attributes:
        gram: Sums of products of the features, one, and the ``R`` targets, a
            ``P x (M + 1 + R) x (M + 1 + R)`` tensor.
        residual: Sums of :math:`k(P_i, P_i) - |\phi_i|^2`, of length ``P``.
        log_noise: Sums of :math:`\log \rho_i` (not divided), of length ``P``.
        count: Number of clouds.
        num_features: Number ``M`` of features.
    """

    gram: Tensor
    residual: Tensor
    log_noise: Tensor
    count: int
    num_features: int

    def __add__(self, other: CollapsedSums) -> CollapsedSums:
        return CollapsedSums(
            self.gram + other.gram,
            self.residual + other.residual,
            self.log_noise + other.log_noise,
            self.count + other.count,
            self.num_features,
        )

    def scaled(self, amplitude: float) -> CollapsedSums:
        """Return the sums for the kernel multiplied by ``amplitude``."""
        factors = torch.ones_like(self.gram[0, 0])
        factors[: self.num_features] = math.sqrt(amplitude)
        gram = (self.gram * factors).mul_(factors.unsqueeze(-1))
        return CollapsedSums(
            gram, amplitude * self.residual, self.log_noise, self.count, self.num_features
        )

    def of_outputs(self, outputs: Tensor) -> CollapsedSums:
        """Return the sums of some outputs, given their indices."""
        size = self.num_features + 1
        if len(self.gram) > 1:
            parts = self.gram[outputs], self.residual[outputs], self.log_noise[outputs]
        else:
            kept = torch.cat([torch.arange(size, device=outputs.device), size + outputs])
            parts = self.gram[:, kept][:, :, kept], self.residual, self.log_noise
        return CollapsedSums(*parts, self.count, self.num_features)

    @property
    def outer(self) -> Tensor:
        """Sums of products of features, ``P x M x M``."""
        return self.gram[:, : self.num_features, : self.num_features]

    def centred(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return sums of features times ``y - mean``, ``P x M x R``, and of its squares, ``P x R``.

        Args:
            mean: The constant mean of each output, ``P x R``.
        """
        size = self.num_features
        right = self.gram[:, :, size + 1 :] - self.gram[:, :, size, None] * mean.unsqueeze(-2)
        squares = torch.linalg.diagonal(right[:, size + 1 :]) - mean * right[:, size]
        return right[:, :size], squares


def column_grams(phi: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums of products of columns.

    Args:
        phi: An ``N x M`` tensor.
        others: A ``P x N x K`` tensor of further columns.
        weights: A ``P x N`` tensor of positive weights.

    Returns:
        A ``P x (M + K) x (M + K)`` tensor.
    """
    grams = []
    for other, weight in zip(others.expand(len(weights), -1, -1), weights, strict=True):
        columns = torch.cat([phi, other], -1) * weight.sqrt().unsqueeze(-1)
        grams.append(column_products(columns))
    return torch.stack(grams) if len(grams) > 1 else grams[0].unsqueeze(0)


def squares(vectors: Tensor) -> Tensor:
    """Return the squared lengths of vectors along the last axis."""
    return torch.linalg.vecdot(vectors, vectors)


def bound(sums: CollapsedSums, noise: Tensor, mean: Tensor) -> Tensor:
    """Compute the lower bound of the log marginal likelihood of all outputs together.

    Args:
        sums: The sums over all clouds.
        noise: The noise scale, a number or one for each entry of the axis ``P``.
        mean: The constant mean of each output, ``P x R``.

    Returns:
        A scalar tensor.

    Source: Titsias 2009, eq. 9.
    """
    noise = noise.expand(len(sums.gram))
    linear, squares = sums.centred(mean)
    factor = _factor(sums, noise)
    explained = torch.linalg.solve_triangular(factor, linear, upper=False).square().sum(-2)
    logdet = (
        sums.count * (math.log(2 * math.pi) + noise.log())
        + sums.log_noise
        + 2 * torch.linalg.diagonal(factor).log().sum(-1)
    )
    quadratic = (squares - explained / noise.unsqueeze(-1)) / noise.unsqueeze(-1)
    each = logdet + sums.residual / noise
    return -0.5 * (quadratic.sum() + mean.shape[-1] * each.sum())


def _factor(sums: CollapsedSums, noise: Tensor) -> Tensor:
    """Return the Cholesky factors of ``I + A / noise``, ``P x M x M``."""
    precision = sums.outer / noise.reshape(-1, 1, 1)
    torch.linalg.diagonal(precision).add_(1)
    return cholesky(precision)


@dataclass(frozen=True, eq=False)
class CollapsedPosterior:
    """The posterior given the sums.

    Attributes:
        features: The features of rows.
        factor: Cholesky factors of the posterior precision of the weights of features, ``P x M x M``.
        weights: Posterior means of the weights of features, ``M x outputs``.
    """

    features: Features
    factor: Tensor
    weights: Tensor

    @classmethod
    def from_sums(
        cls, features: Features, sums: CollapsedSums, noise: Tensor, mean: Tensor
    ) -> CollapsedPosterior:
        """Compute the posterior from sums, with arguments as for :func:`bound`."""
        noise = noise.expand(len(sums.gram))
        factor = _factor(sums, noise)
        linear, _ = sums.centred(mean)
        weights = torch.cholesky_solve(linear / noise.reshape(-1, 1, 1), factor)
        return cls(features, factor, weights.movedim(0, -2).flatten(-2))

    def moments(
        self, phi: Tensor, within: Tensor, outputs: Sequence[int]
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute posterior means, without the prior mean, and covariances.

        Args:
            phi: Features, ``... x q x M``.
            within: Prior covariances, ``... x q x q``.
            outputs: Indices of outputs.

        Returns:
            The means, ``... x q x outputs``, and for each of the outputs covariances, ``... x q x q``.
        """
        left = within - phi @ phi.mT
        factors = [0] if len(self.factor) == 1 else outputs
        roots = [solve_lower(self.factor[index], phi) for index in factors]
        covariances = [left + root @ root.mT for root in roots]
        means = phi @ self.weights[:, list(outputs)]
        return means, covariances * (len(outputs) if len(self.factor) == 1 else 1)

    def marginals(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Compute posterior means, without the prior mean, and the two parts of posterior variances.

        Args:
            rows: ``N x width`` rows.

        Returns:
            The means, ``N x outputs``; the variances in the span of the features, ``P x N``; and the
            variances beyond it, ``N``.
        """
        phi = self.features(rows)
        spread = torch.stack([squares(solve_lower(factor, phi)) for factor in self.factor])
        return phi @ self.weights, spread, self.features.residual(rows, phi)
