"""Models of several outputs that share one kernel and one factorisation of its covariance matrix."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.hosts import DefaultType
from gp_distributions.measures.inputs import Inputs, TrainingData
from gp_distributions.models.arguments import gaussian_noise
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.exact_inference import ExactMultivariateNormal, without_noise
from gp_distributions.numerics.linear_algebra import log_densities


class SharedKernelGP(DistributionGP):
    r"""Exact Gaussian process regression of several outputs with one kernel and one noise.

    Given the hyperparameters, the outputs are independent. They share the covariance matrix :math:`K`
    and the noise :math:`\sigma^2`, and each has its own mean :math:`\mu_o`. The marginal likelihood

    .. math::
        \sum_o \log p(y_o) = -\tfrac12 \sum_o (y_o - \mu_o)^\top (K + \sigma^2 I)^{-1} (y_o - \mu_o)
        - \tfrac{O}{2} \log |2 \pi (K + \sigma^2 I)|,

    its gradient and the posterior need one Cholesky factor of :math:`K + \sigma^2 I`, while
    :class:`DistributionGP` needs one for each of the :math:`O` outputs. Use this model for many outputs
    of similar smoothness on the same clouds, such as the principal components of a curve.

    With one output, the model equals a :class:`DistributionGP`. In the objective of :func:`fit`, the
    prior of the noise counts once for each output. BoTorch's cross-validation needs a covariance matrix
    for each output: pass it ``model.subset_output([i])`` for each output ``i``.

    Args:
        train_X: The ``T`` training clouds, rows or designs, as for :class:`DistributionGP`.
        train_Y: The targets, ``T x outputs``, or ``T`` for one output.
        covar_module: A kernel on rows, without a batch axis. The default for :class:`PointClouds` and
            :class:`Gaussians` is that of :class:`DistributionGP`.
        likelihood: The likelihood. The default is Gaussian noise with one variance for all outputs. Any
            other likelihood with analytic marginals needs one factorisation for each output.
        mean_module: The mean. The default is a constant for each output.
        outcome_transform: The transform of the targets. The default is BoTorch's ``Standardize``, which
            treats each output separately; ``None`` leaves the targets as they are.
        input_transform: A transform from the model's inputs to rows.

    Raises:
        TypeError: As for :class:`DistributionGP`.
        ValueError: As for :class:`DistributionGP`, or if ``covar_module`` has a batch axis.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, SharedKernelGP, fit
        >>> points = torch.randn(11, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean(-2)
        >>> model = fit(SharedKernelGP(clouds[:9], targets[:9]), restarts=0)
        >>> mean, std = model.predict(clouds[9:])
        >>> mean.shape
        torch.Size([2, 2])
    """

    _shares_kernel = True

    def __init__(
        self,
        train_X: Inputs | Tensor | TrainingData,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        data = TrainingData.read(train_X, train_Y)
        shape = data.targets.shape
        if mean_module is None and shape[-1] > 1:
            mean_module = ConstantMean(batch_shape=shape[:-2] + shape[-1:])
        if likelihood is None:
            likelihood = SharedNoise(**gaussian_noise(data.dtype))
        super().__init__(
            data,
            None,
            covar_module,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )

    @property
    def _aug_batch_shape(self) -> torch.Size:
        # BoTorch would fit each output separately if this were the number of outputs; but the outputs
        # share parameters.
        return torch.Size([1]) if self.num_outputs > 1 else self._input_batch_shape

    @_aug_batch_shape.setter
    def _aug_batch_shape(self, shape: torch.Size) -> None:
        pass

    def _compared(self, rows: EmbeddedRows) -> EmbeddedRows:
        """Return the rows of the first output for the kernel, since all outputs have the same rows."""
        if self.num_outputs == 1:
            return rows
        return rows.derived("first output", lambda: EmbeddedRows(rows.rows.narrow(-3, 0, 1)))

    @property
    def _normal(self) -> type[ExactMultivariateNormal]:  # type: ignore[override]
        return SharedCovarianceNormal if self.num_outputs > 1 else ExactMultivariateNormal


class SharedNoise(GaussianLikelihood):
    """Gaussian noise with one variance for all outputs, which therefore share a covariance matrix."""

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """Return the distribution of noisy observations, given that of the function."""
        if not isinstance(function_dist, SharedCovarianceNormal):
            return super().marginal(function_dist, *params, **kwargs)
        covariance = function_dist.lazy_covariance_matrix
        noise = self._shaped_noise_covar(covariance.shape[:-1], *params, **kwargs)
        return SharedCovarianceNormal(function_dist.mean, covariance + noise)


class SharedCovarianceNormal(ExactMultivariateNormal):
    """Multivariate normal distributions of several outputs that share one covariance matrix.

    Args:
        mean: The means of the outputs, a ``batch_shape x outputs x N`` tensor.
        covariance_matrix: The shared covariance matrix, a ``batch_shape x 1 x N x N`` linear operator.
    """

    def log_prob(self, value: Tensor, *, level: bool = False) -> Tensor:
        """Return the log density of the values of each output, a ``batch_shape x outputs`` tensor."""
        if self.lazy_covariance_matrix.shape[-3] > 1:
            return super().log_prob(value, level=level)
        covariance, noise = without_noise(self.lazy_covariance_matrix)
        errors = (value - self.mean).mT
        return log_densities(errors, covariance.squeeze(-3), noise.squeeze(-2), level=level)
