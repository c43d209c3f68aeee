"""Several outputs with one kernel, whose covariance matrix is factorised once for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures.kinds import Distributions
from gp_distributions.models.arguments import check_modules, counted_rows, default_kernel
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.exact_inference import ExactMultivariateNormal
from gp_distributions.numerics.cholesky import log_densities


class SharedKernelGP(DistributionGP):
    r"""Exact Gaussian process regression of several outputs with one kernel and one noise.

    Given the hyperparameters the outputs are independent; they have the covariances :math:`K` and the
    noise :math:`\sigma^2` in common, and each its own mean :math:`\mu_o`. The marginal likelihood

    .. math::
        \sum_o \log p(y_o) = -\tfrac12 \sum_o (y_o - \mu_o)^\top (K + \sigma^2 I)^{-1} (y_o - \mu_o)
        - \tfrac{O}{2} \log |2 \pi (K + \sigma^2 I)|,

    its gradient and the posterior take one Cholesky factor of :math:`K + \sigma^2 I`, where
    :class:`DistributionGP` takes :math:`O`, one for each kernel. For many outputs on the same clouds
    whose smoothness is alike, such as the principal components of a curve or the scores of classes.

    Everything else is as in :class:`DistributionGP`; with one output, it is one. The prior on the noise
    counts once for each output. BoTorch's cross-validation takes models with a covariance matrix for
    each output: give it ``model.subset_output([i])``.

    Args:
        train_X: The ``T`` clouds, rows or designs, as for :class:`DistributionGP`.
        train_Y: The targets, ``T x outputs``.
        covar_module: A kernel on rows, without an axis of outputs. Default, for :class:`PointClouds` and
            :class:`Gaussians`: a scaled ``SlicedWassersteinKernel(dim, profile="matern52")``.
        likelihood: Default: :class:`SharedNoise`. Any other with analytic marginals will do, but takes
            a factorisation for each output.
        mean_module: Default: a constant for each output.
        outcome_transform: Default: BoTorch's ``Standardize``, by output. ``None`` for none.
        input_transform: Maps what the model is given to rows.

    Raises:
        TypeError: As :class:`DistributionGP` does.
        ValueError: As :class:`DistributionGP` does, or if ``covar_module`` has an axis of outputs.
    """

    def __init__(
        self,
        train_X: Distributions | Tensor,
        train_Y: Tensor | ArrayLike,
        covar_module: Kernel | None = None,
        *,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        rows = counted_rows(train_X)
        if covar_module is None:
            covar_module = default_kernel(train_X)
        check_modules(covar_module, likelihood, rows.shape[-2])
        if covar_module.batch_shape:
            raise ValueError(
                "Expected one kernel for all outputs, got a batch of shape "
                f"{tuple(covar_module.batch_shape)}. DistributionGP has a kernel for each output."
            )
        shape = torch.Size(np.shape(train_Y))
        if mean_module is None and len(shape) > 1 and shape[-1] > 1:
            mean_module = ConstantMean(batch_shape=shape[:-2] + shape[-1:])
        if likelihood is None:
            likelihood = SharedNoise(1e-8 if rows.dtype == torch.float64 else 1e-4)
        super().__init__(
            train_X,
            train_Y,
            covar_module,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )

    @property
    def _aug_batch_shape(self) -> torch.Size:
        # BoTorch's optimiser takes the parts of a batch for separate models; these share parameters.
        return torch.Size([1]) if self.num_outputs > 1 else self._input_batch_shape

    @_aug_batch_shape.setter
    def _aug_batch_shape(self, shape: torch.Size) -> None:
        pass

    def _compared(self, rows: Tensor) -> Tensor:
        """The rows that the kernel is given: those of one of the outputs, as all have the same."""
        return rows.narrow(-3, 0, 1) if self.num_outputs > 1 else rows

    @property
    def _normal(self) -> type[ExactMultivariateNormal]:  # type: ignore[override]
        return SharedCovarianceNormal if self.num_outputs > 1 else ExactMultivariateNormal


class SharedNoise(GaussianLikelihood):
    """Gaussian noise of one variance, which keeps covariances that are the same for all outputs so.

    Args:
        floor: The smallest variance.
    """

    def __init__(self, floor: float) -> None:
        prior = LogNormalPrior(loc=-4.0, scale=1.0)
        constraint = GreaterThan(floor, initial_value=prior.mode)
        super().__init__(noise_prior=prior, noise_constraint=constraint)
        self.floor = floor

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """The distribution of noisy values."""
        if not isinstance(function_dist, SharedCovarianceNormal):
            return super().marginal(function_dist, *params, **kwargs)
        covariance = function_dist.lazy_covariance_matrix
        noise = self._shaped_noise_covar(covariance.shape[:-1], *params, **kwargs)
        return SharedCovarianceNormal(function_dist.mean, covariance + noise)


class SharedCovarianceNormal(ExactMultivariateNormal):
    """Multivariate normals with one covariance matrix.

    Args:
        mean: A ``batch_shape x outputs x N`` tensor.
        covariance_matrix: A ``batch_shape x 1 x N x N`` operator.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of each output's values, ``batch_shape x outputs``."""
        if self.lazy_covariance_matrix.shape[-3] > 1:
            return super().log_prob(value)
        covariance = self.lazy_covariance_matrix.to_dense().squeeze(-3)
        return log_densities((value - self.mean).mT, covariance)
