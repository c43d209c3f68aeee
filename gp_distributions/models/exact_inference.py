"""Exact inference by Cholesky factors, for any number of clouds and any GPyTorch settings.

GPyTorch and BoTorch switch settings of the whole process while they predict, which threads that predict
at the same time could leave changed. This module does not.
"""

from __future__ import annotations

import torch
from botorch.posteriors import Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import Likelihood
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.operators import RootLinearOperator, TriangularLinearOperator
from linear_operator.utils.memoize import add_to_cache, get_from_cache
from torch import Tensor

from gp_distributions.numerics.cholesky import cholesky, log_densities

_ONE_SAMPLE = torch.Size()


class ExactMultivariateNormal(MultivariateNormal):
    """A multivariate normal distribution whose density and samples come from Cholesky factors."""

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of ``value``."""
        covariance = self.lazy_covariance_matrix.to_dense()
        difference = value - self.loc
        batch_shape = torch.broadcast_shapes(difference.shape[:-1], covariance.shape[:-2])
        difference = difference.expand(*batch_shape, -1)
        samples = len(batch_shape) - (covariance.dim() - 2)
        columns = difference.flatten(0, samples - 1) if samples else difference.unsqueeze(0)
        covariance = covariance.expand(*batch_shape[samples:], -1, -1)
        return log_densities(columns.movedim(0, -1), covariance).movedim(-1, 0).reshape(batch_shape)

    def rsample(
        self, sample_shape: torch.Size = _ONE_SAMPLE, base_samples: Tensor | None = None
    ) -> Tensor:
        """Reparametrised samples, ``sample_shape x batch_shape x N``."""
        covariance = self.lazy_covariance_matrix
        if not hasattr(covariance, "_memoize_cache"):
            dense = covariance.to_dense()
            # A single variance that rounding made negative needs no jitter.
            factor = dense.clamp_min(0).sqrt() if dense.shape[-1] == 1 else cholesky(dense)
            add_to_cache(covariance, "root_decomposition", _root(factor))
        if base_samples is None:
            base_samples = self.get_base_samples(sample_shape)
        return super().rsample(sample_shape, base_samples)


class ExactPredictionStrategy(DefaultPredictionStrategy):
    """Quantities that predictions need from the training data, computed once and then only read.

    GPyTorch makes the strategies of fantasies from it, with caches that it updates.
    """

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
        if root is not None:  # for fantasies, GPyTorch adds the caches
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
        """Weights of the training clouds in predicted means, ``batch_shape x T``."""
        return get_from_cache(self, "mean_cache")

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: Tensor, test_train_covar: Tensor
    ) -> tuple[Tensor, LinearOperator]:
        """Mean and covariance of the posterior, from those of the prior."""
        mean = test_mean + (test_train_covar @ self.mean_cache.unsqueeze(-1)).squeeze(-1)
        root = test_train_covar @ self.covar_cache
        return mean, to_linear_operator(test_test_covar - root @ root.mT)


def variances(posterior: Posterior, smallest: float) -> Tensor:
    """Marginal variances of a posterior, ``batch_shape x q x outputs``.

    GPyTorch would bound them below by one number, regardless of the unit of the targets.

    Args:
        posterior: Posterior of a model.
        smallest: Lower bound of the variances of a normal posterior.
    """
    distribution = getattr(posterior, "distribution", None)
    if not isinstance(distribution, MultivariateNormal):
        return posterior.variance
    diagonal = distribution.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
    if isinstance(distribution, MultitaskMultivariateNormal):
        values, outputs = distribution.event_shape
        shape = (values, outputs) if distribution._interleaved else (outputs, values)
        diagonal = diagonal.unflatten(-1, shape)
        diagonal = diagonal if distribution._interleaved else diagonal.mT
    else:
        diagonal = diagonal.unsqueeze(-1)
    return diagonal.clamp_min(smallest).expand(posterior.mean.shape)


def _root(factor: Tensor) -> RootLinearOperator:
    return RootLinearOperator(TriangularLinearOperator(factor))
