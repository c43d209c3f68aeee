"""Noise of targets that belong to one draw from an input, whose place in the input is not known."""

from __future__ import annotations

from typing import Any

import torch
from botorch.sampling.qmc import NormalQMCEngine
from gpytorch.constraints import Interval
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.priors import Prior
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.distances.embedded_rows import Rows
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures.gaussians import symmetric_root
from gp_distributions.models.sampling_noise import ReadsRows, RowNoiseLikelihood
from gp_distributions.rows.clouds import join_rows, split_rows
from gp_distributions.rows.layout import join_gaussians, normalized, split_gaussians

_NO_BATCH = torch.Size()
# Number of quasi-random points of each Gaussian.
_DRAWS = 256


class DrawNoiseLikelihood(RowNoiseLikelihood):
    r"""Gaussian noise, and the variance of the function within each input.

    If a target is :math:`f(x) + \epsilon` at a draw :math:`x \sim P` that was not observed, then, given
    only :math:`P`, its variance about the mean :math:`\int f\, dP` is

    .. math::
        \sigma^2 + \mathrm E\, k(x, x) - \mathrm E\, k(x, x'),

    with :math:`x` and :math:`x'` independent draws from :math:`P`: no more than :math:`\sigma^2` if
    :math:`P` is a point. This is the noise of training targets. At new inputs, a model predicts the
    variance of :math:`f(x)` given the data, not this one.

    Args:
        kernel: Kernel of the distributions, which the model has as well.
        noise_prior: Prior of :math:`\sigma^2`.
        noise_constraint: Constraint of :math:`\sigma^2`. GPyTorch's default is a lower bound of 1e-4.
        batch_shape: Batch shape of :math:`\sigma^2`.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from gp_distributions import Gaussians
        >>> from gp_distributions.kernels import ExpectedKernel
        >>> from gp_distributions.models import DrawNoiseLikelihood
        >>> kernel = ExpectedKernel(RBFKernel(), dim=1, inputs="gaussians")
        >>> rows = Gaussians([[0.0], [0.0]], [[[0.0]], [[1.0]]]).pack()
        >>> noise = DrawNoiseLikelihood(kernel).variances(rows)
        >>> bool(noise[0] < noise[1])
        True

    Source: Girard et al. 2003.
    """

    def __init__(
        self,
        kernel: ExpectedKernel,
        *,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        batch_shape: torch.Size = _NO_BATCH,
    ) -> None:
        super().__init__(
            noise_prior=noise_prior, noise_constraint=noise_constraint, batch_shape=batch_shape
        )
        self.kernel = kernel

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variance of each row."""
        return self.noise + variance_within(self.kernel, rows)


class AddedNoiseLikelihood(ReadsRows, FixedNoiseGaussianLikelihood):
    r"""Gaussian noise that is learned beside known variances, :math:`a + v_i`.

    The errors of the targets are known, and :math:`a` is what the function leaves of them. Of draws,
    there is the variance of the function within each input as well, as in :class:`DrawNoiseLikelihood`.

    Args:
        noise: The known variances :math:`v_i` of the training targets.
        kernel: Kernel of the distributions, if targets belong to draws from them.
        noise_prior: Prior of :math:`a`.
        noise_constraint: Constraint of :math:`a`, ``second_noise``.
    """

    def __init__(
        self,
        noise: Tensor,
        kernel: ExpectedKernel | None = None,
        *,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        learned: Any = {"noise_prior": noise_prior, "noise_constraint": noise_constraint}
        super().__init__(noise, learn_additional_noise=True, **learned)
        self.kernel = kernel

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, **kwargs: Any
    ) -> DiagLinearOperator:
        known, own = kwargs.get("noise"), self.noise_covar.noise
        if known is None:  # other targets have the mean of the known variances
            known = own if base_shape[-1] == own.shape[-1] else own.mean(-1, keepdim=True)
        noise = known + self.second_noise
        if self.kernel is not None:
            rows = params[0] if isinstance(params[0], Rows) else params[0][0]
            noise = noise + variance_within(self.kernel, rows)
        return DiagLinearOperator(noise.expand(torch.broadcast_shapes(noise.shape, base_shape)))


def variance_within(kernel: ExpectedKernel, rows: Rows) -> Tensor:
    """Compute the prior variance of the function within each row, ``batch_shape x N``."""
    return (kernel.variances(rows) - kernel.forward(rows, rows, diag=True)).clamp_min(0)


def draws_of(kernel: ExpectedKernel, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return draws from distributions, as rows of single atoms, and their weights.

    Clouds have their atoms. Gaussians have quasi-random points of the same mean and covariance.

    Args:
        kernel: The kernel of the distributions.
        rows: A ``batch_shape x N x width`` tensor.

    Returns:
        Rows, ``batch_shape x N x M x width'``, and weights, ``batch_shape x N x M``.
    """
    if kernel.inputs == "clouds":
        atoms, weights = split_rows(rows, kernel.dim)
        return join_rows(atoms.unsqueeze(-2), torch.ones_like(weights[..., None])), normalized(
            weights
        )
    mean, covariance = split_gaussians(rows, kernel.dim)
    points = mean.unsqueeze(-2)
    if bool(covariance.any()):  # points are their own draws
        points = points + _normals(kernel.dim).to(mean) @ symmetric_root(covariance)
    none = points.new_zeros(*points.shape, kernel.dim)
    return join_gaussians(points, none), points.new_full(points.shape[:-1], 1 / points.shape[-2])


def _normals(dim: int) -> Tensor:
    """Return quasi-random points with the mean zero and the covariance one, ``M x dim``."""
    points = NormalQMCEngine(dim, seed=0).draw(_DRAWS, dtype=torch.float64)
    points = points - points.mean(0)
    factor = torch.linalg.cholesky(points.mT @ points / _DRAWS)
    return torch.linalg.solve_triangular(factor, points.mT, upper=False).mT
