"""Exact inference by Cholesky factors, for any number of clouds and any GPyTorch settings.

While GPyTorch and BoTorch predict, they change settings of the whole process. If several threads predict
at the same time, the settings could stay changed. This module does not change any settings.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import torch
from botorch.posteriors import Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import LinearOperator
from linear_operator.operators import (
    AddedDiagLinearOperator,
    DiagLinearOperator,
    RootLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.utils.errors import CachingError
from linear_operator.utils.memoize import add_to_cache, get_from_cache
from torch import Tensor

from gp_distributions.numerics.linear_algebra import cholesky, log_densities

# Means and variances.
Moments: TypeAlias = tuple[Tensor, Tensor]

_ONE_SAMPLE = torch.Size()


class ExactMultivariateNormal(MultivariateNormal):
    """Multivariate normal distribution that computes densities and samples from Cholesky factors."""

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of ``value``."""
        covariance, noise = without_noise(self.lazy_covariance_matrix)
        difference = value - self.loc
        batch_shape = torch.broadcast_shapes(
            difference.shape[:-1], covariance.shape[:-2], noise.shape[:-1]
        )
        difference = difference.expand(*batch_shape, -1)
        samples = len(batch_shape) - (covariance.dim() - 2)
        columns = difference.flatten(0, samples - 1) if samples else difference.unsqueeze(0)
        covariance = covariance.expand(*batch_shape[samples:], -1, -1)
        noise = noise.expand(*batch_shape[samples:], -1)
        densities = log_densities(columns.movedim(0, -1), covariance, noise)
        return densities.movedim(-1, 0).reshape(batch_shape)

    def rsample(
        self, sample_shape: torch.Size = _ONE_SAMPLE, base_samples: Tensor | None = None
    ) -> Tensor:
        """Draw reparametrised samples, a ``sample_shape x batch_shape x N`` tensor."""
        covariance = self.lazy_covariance_matrix
        try:
            get_from_cache(covariance, "root_decomposition")
        except CachingError:
            dense = covariance.to_dense()
            # A single variance that rounding made negative becomes 0 and needs no jitter.
            factor = dense.clamp_min(0).sqrt() if dense.shape[-1] == 1 else cholesky(dense)
            add_to_cache(covariance, "root_decomposition", _root(factor))
        if base_samples is None:
            base_samples = self.get_base_samples(sample_shape)
        return super().rsample(sample_shape, base_samples)


class ExactPredictionStrategy(DefaultPredictionStrategy):
    """Caches of the training data that predictions need, computed once and never changed.

    For fantasies, GPyTorch makes new strategies from this one and updates copies of its caches.

    Attributes:
        key: Key of the modules and hyperparameters from which the caches were computed.
    """

    key: Hashable = None

    def __init__(
        self,
        train_inputs: list[Tensor],
        train_prior_dist: MultivariateNormal,
        train_labels: Tensor,
        likelihood: Likelihood,
        root: LinearOperator | None = None,
        inv_root: LinearOperator | None = None,
    ) -> None:
        super().__init__(train_inputs, train_prior_dist, train_labels, likelihood, root, inv_root)
        if root is not None:  # a fantasy, whose caches GPyTorch adds
            return
        noisy = self.lik_train_train_covar
        factor = cholesky(noisy.to_dense())
        identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False).mT
        difference = (self.train_labels - train_prior_dist.loc).unsqueeze(-1)
        add_to_cache(noisy, "root_decomposition", _root(factor))
        add_to_cache(noisy, "root_inv_decomposition", RootLinearOperator(inverse))
        add_to_cache(self, "mean_cache", torch.cholesky_solve(difference, factor).squeeze(-1))
        add_to_cache(self, "covar_cache", inverse)

    @property
    def mean_cache(self) -> Tensor:
        """The weights of the training clouds in predicted means, a ``batch_shape x T`` tensor."""
        return get_from_cache(self, "mean_cache")

    def is_of(self, key: Hashable) -> bool:
        """Whether the caches belong to modules and values, and can be used in this mode."""
        usable = torch.is_inference_mode_enabled() or not self.mean_cache.is_inference()
        return usable and self.key == key

    @property
    def precision(self) -> Tensor:
        """The diagonal of the inverse covariance matrix of the targets, ``batch_shape x T``."""
        return self.covar_cache.square().sum(-1)

    def projected(self, to_train: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the training clouds add to prior means, and a root of what they explain.

        Args:
            to_train: Prior covariances with the training clouds, ``batch_shape x N x T``.
        """
        fitted = (to_train @ self.mean_cache.unsqueeze(-1)).squeeze(-1)
        return fitted, to_train @ self.covar_cache

    def marginals(self, to_train: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the training clouds add to prior means and take from prior variances."""
        fitted, root = self.projected(to_train)
        return fitted, root.square().sum(-1)


def without_noise(operator: LinearOperator) -> tuple[Tensor, Tensor]:
    """Return a dense matrix and a diagonal, whose sum is the matrix that an operator stands for.

    If the operator is a sum of a matrix and a diagonal, they are its terms, so that a large matrix need
    not be copied to add noise.

    Args:
        operator: A ``batch_shape x N x N`` linear operator.

    Returns:
        A ``batch_shape x N x N`` tensor and a ``batch_shape x N`` tensor.
    """
    if type(operator) is AddedDiagLinearOperator:
        first, second = operator.linear_ops
        if isinstance(second, DiagLinearOperator):
            return first.to_dense(), second.diagonal()
    dense = operator.to_dense()
    return dense, dense.new_zeros(dense.shape[:-1])


def marginal_moments(posterior: Posterior, smallest: float) -> Moments:
    """Return the means and the marginal variances of a posterior.

    ``posterior.variance`` of GPyTorch has the same lower bound for targets in any unit. This function
    takes the bound as an argument.

    Args:
        posterior: The posterior of a model.
        smallest: Lower bound of the variances. It applies only to multivariate normal posteriors.

    Returns:
        Two ``batch_shape x q x outputs`` tensors.

    Raises:
        ValueError: If the outcome transform of the model has no moments in closed form.
    """
    try:
        mean = posterior.mean
    except NotImplementedError as error:  # of BoTorch's TransformedPosterior
        raise ValueError(
            "Expected an outcome transform under which means are known, such as Standardize, Log or a "
            "chain of them. Draw samples from posterior(X), or transform the targets beforehand."
        ) from error
    distribution = getattr(posterior, "distribution", None)
    if not isinstance(distribution, MultivariateNormal):
        return mean, posterior.variance
    diagonal = distribution.lazy_covariance_matrix.diagonal()
    if isinstance(distribution, MultitaskMultivariateNormal):
        values, outputs = distribution.event_shape
        shape = (values, outputs) if distribution._interleaved else (outputs, values)
        diagonal = diagonal.unflatten(-1, shape)
        diagonal = diagonal if distribution._interleaved else diagonal.mT
    else:
        diagonal = diagonal.unsqueeze(-1)
    return mean, diagonal.clamp_min(smallest).expand(mean.shape)


def _root(factor: Tensor) -> RootLinearOperator:
    return RootLinearOperator(TriangularLinearOperator(factor))
