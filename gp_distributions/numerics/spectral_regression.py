"""Regression with several covariances at many ratios of noise, from one eigendecomposition of each."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gp_distributions.numerics import student_t


class LeftOut(NamedTuple):
    """Predictions of each target from all others, ``batch_shape x L x J x T`` tensors.

    Attributes:
        errors: The targets minus the locations.
        squared: The squared scales.
        outputscales: The outputscales estimated without the target, or the known ones.
        log_density: Log densities of the targets.
    """

    errors: Tensor
    squared: Tensor
    outputscales: Tensor
    log_density: Tensor


class SpectralRegression:
    r"""Gaussian process regression whose mean and outputscale are integrated in closed form.

    With covariances :math:`s^2 K_l`, noise variances :math:`s^2 r_{lj} D` and a constant mean
    :math:`\mu`,

    .. math::
        y \sim \mathcal N\bigl(\mu 1,\; s^2 A_{lj}\bigr), \qquad A_{lj} = K_l + r_{lj} D, \qquad
        p(\mu, \log s^2) \propto 1,

    a new value is a Student's t variable with :math:`\nu = T - 1` degrees of freedom. Let

    .. math::
        S = 1^\top A^{-1} 1, \qquad \beta = 1^\top A^{-1} y / S, \qquad
        Q = (y - \beta 1)^\top A^{-1} (y - \beta 1).

    Then its location and squared scale are

    .. math::
        m(x) = \beta + k^\top A^{-1} (y - \beta 1), \qquad
        \frac{Q}{\nu} \Bigl(k(x, x) - k^\top A^{-1} k + (1 - 1^\top A^{-1} k)^2 / S\Bigr),

    and the marginal likelihood of the member :math:`(l, j)` is

    .. math::
        \Gamma(\nu / 2)\, (\pi Q)^{-\nu / 2}\, |A|^{-1/2}\, S^{-1/2}.

    The eigendecomposition :math:`D^{-1/2} K_l D^{-1/2} = U \Lambda U^\top` serves all ratios.

    Args:
        covariances: Covariances :math:`K_l`, a ``batch_shape x L x T x T`` tensor.
        targets: Targets, a ``batch_shape x T`` tensor, with the same or a broadcasting batch shape.
        ratios: The ratios :math:`r_{lj}` of noise to outputscale, an ``L x J`` tensor, or ``J`` of them
            for all covariances.
        noise: The diagonal of :math:`D`, a ``batch_shape x T`` tensor. Default: ones.
        outputscales: The outputscales :math:`s^2`, in the shape of ``ratios``, if they are known rather
            than integrated. New values are then normal.
        constant: Whether there is a constant mean :math:`\mu` to integrate. If not, :math:`\mu = 0` and
            :math:`\nu = T`.

    Source: Handcock and Stein 1993; O'Hagan 1978.
    """

    def __init__(
        self,
        covariances: Tensor,
        targets: Tensor,
        ratios: Tensor,
        *,
        noise: Tensor | None = None,
        outputscales: Tensor | None = None,
        constant: bool = True,
    ) -> None:
        size = targets.shape[-1]
        root = (torch.ones_like(targets[..., :1]) if noise is None else noise).rsqrt()
        root = root[..., None, :].expand(*root.shape[:-1], 1, size)
        values, vectors = torch.linalg.eigh(root[..., None] * covariances * root[..., None, :])
        self.ratios = ratios
        self.outputscales = outputscales
        self.freedom = size - 1 if constant else size
        #: ``batch_shape x L x T x T`` matrices whose rows project values at the clouds.
        self.projection = vectors.mT * root[..., None, :]
        #: Inverse variances of the projections, ``batch_shape x L x J x T``.
        self.precision = 1 / (values.clamp_min(0).unsqueeze(-2) + ratios.unsqueeze(-1))
        ones = self._project(torch.ones_like(targets[..., :1]).expand(*targets.shape[:-1], size))
        self._ones = ones if constant else torch.zeros_like(ones)
        projected = self._project(targets)
        total = (self.precision * self._ones.square()).sum(-1)
        # The sum S, or infinity without a mean, ``batch_shape x L x J``.
        self._total = torch.where(total > 0, total, torch.inf)
        #: The estimated constant mean, ``batch_shape x L x J``.
        self.mean = (self.precision * self._ones * projected).sum(-1) / self._total
        residuals = projected - self.mean.unsqueeze(-1) * self._ones
        # The projections of the solutions of the linear systems, ``batch_shape x L x J x T``.
        self._weighted = self.precision * residuals
        # The quadratic form Q, ``batch_shape x L x J``.
        self._quadratic = (self._weighted * residuals).sum(-1)

    def _project(self, values: Tensor) -> Tensor:
        """Project ``batch_shape x T`` values, ``batch_shape x L x 1 x T``."""
        return (self.projection @ values[..., None, :, None]).mT

    @property
    def log_evidence(self) -> Tensor:
        """Log marginal likelihoods, ``batch_shape x L x J``, up to a constant that depends on ``D``."""
        nu = self.freedom
        determinants = self.precision.log().sum(-1)
        if torch.isfinite(self._total).all():
            determinants = determinants - self._total.log()
        if self.outputscales is None:
            gamma = math.lgamma(nu / 2) - nu / 2 * math.log(math.pi)
            return gamma + (determinants - nu * self._quadratic.log()) / 2
        scales = self.outputscales
        return (determinants - nu * (2 * math.pi * scales).log() - self._quadratic / scales) / 2

    @property
    def scales(self) -> Tensor:
        """The estimated outputscales of all members, ``batch_shape x L x J``."""
        if self.outputscales is None:
            return self._quadratic / self.freedom
        return self.outputscales.expand(self._quadratic.shape)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of new values; infinity if the outputscales are known."""
        return self.freedom if self.outputscales is None else math.inf

    def leave_one_out(self) -> LeftOut:
        r"""Predict each target from all others, with the mean and the outputscale integrated anew.

        With :math:`P = A^{-1} - A^{-1} 1 1^\top A^{-1} / S`, the error of target :math:`i`, and the
        quadratic form of all others, are

        .. math:: e_i = \frac{[P y]_i}{P_{ii}}, \qquad Q_{-i} = Q - P_{ii}\, e_i^2.

        The squared scale is :math:`Q_{-i} / ((\nu - 1) P_{ii})`, with :math:`\nu - 1` degrees of
        freedom.
        """
        ones = (self.precision * self._ones) @ self.projection
        diagonal = self.precision @ self.projection.square()
        diagonal = diagonal - ones.square() / self._total.unsqueeze(-1)
        errors = self._weighted @ self.projection / diagonal
        scales = self.scales.unsqueeze(-1)
        if self.outputscales is None:
            total = self._quadratic.unsqueeze(-1)
            others = total - diagonal * errors.square()
            # Nothing is left but rounding errors where all other targets are equal.
            floor = torch.finfo(total.dtype).eps * total
            scales = torch.maximum(others, floor) / (self.freedom - 1)
        squared = scales / diagonal
        degrees = errors.new_tensor(self.degrees - 1)
        log_density = student_t.log_density(errors * squared.rsqrt(), degrees) - squared.log() / 2
        return LeftOut(errors, squared, scales.expand(errors.shape), log_density)

    def predict(self, across: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the locations and squared scales of new values.

        Args:
            across: Covariances with the clouds, a ``batch_shape x L x q x T`` tensor.
            variances: Prior variances, a ``batch_shape x L x q`` tensor.

        Returns:
            Two ``batch_shape x L x J x q`` tensors.
        """
        projected = self.projection @ across.mT  # ... x L x T x q
        location = self.mean.unsqueeze(-1) + self._weighted @ projected
        explained = self.precision @ projected.square()
        left = self._unexplained(projected)
        squared = variances.unsqueeze(-2) - explained + left.square() / self._total.unsqueeze(-1)
        return location, self.scales.unsqueeze(-1) * squared

    def covariance(self, across: Tensor, within: Tensor, members: Tensor) -> Tensor:
        """Compute scale matrices of new values for some members.

        Args:
            across: Covariances with the clouds, a ``batch_shape x L x q x T`` tensor.
            within: Prior covariances, a ``batch_shape x L x q x q`` tensor.
            members: The numbers of ``n`` members, which count the ratios of each covariance in turn.

        Returns:
            A ``batch_shape x n x q x q`` tensor.
        """
        projected = self.projection @ across.mT
        left = self._unexplained(projected).flatten(-3, -2)[..., members, :]
        first = members // self.ratios.shape[-1]
        projected = projected[..., first, :, :]
        precision = self.precision.flatten(-3, -2)[..., members, :].unsqueeze(-1)
        squared = within[..., first, :, :] - projected.mT @ (precision * projected)
        total = self._total.flatten(-2)[..., members]
        squared = squared + left.unsqueeze(-1) * left.unsqueeze(-2) / total[..., None, None]
        return self.scales.flatten(-2)[..., members][..., None, None] * squared

    def _unexplained(self, projected: Tensor) -> Tensor:
        """The part of the mean at new clouds that the clouds do not explain, ``... x L x J x q``."""
        return 1 - (self.precision * self._ones) @ projected
