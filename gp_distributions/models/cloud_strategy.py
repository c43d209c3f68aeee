"""GPyTorch's variational strategy on clouds."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import VariationalStrategy
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.kernels.covariances import covariance
from gp_distributions.models.exact_inference import ExactMultivariateNormal
from gp_distributions.numerics.linear_algebra import cholesky

# Jitter of the covariance of inducing clouds, a share of the mean prior variance.
_JITTER = 1e-6


class CloudStrategy(VariationalStrategy):
    """GPyTorch's whitened strategy, on rows of any width that hold what was computed from them."""

    @property
    def variational_distribution(self) -> MultivariateNormal:
        """The distribution of whitened inducing values, which GPyTorch would not see change."""
        found: MultivariateNormal = self._variational_distribution()
        return found

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what whitened inducing values explain of rows, ``M x N``, and variances left over.

        In training, the values of training clouds include the effects of clouds.
        """
        model = self.model
        kernel, effect = model.covar_module, model.effect_variance
        inducing, rows = model.held(self.inducing_points), model.held(x)
        prior = covariance(kernel, inducing)
        every = inducing is model.held(model.train_rows)
        extra = _JITTER * prior.diagonal().mean() + (effect if every else 0.0)
        factor = cholesky(prior + extra * torch.eye(len(prior)).to(prior))
        if self.training and every and rows is inducing:
            return factor.mT, None
        found = torch.linalg.solve_triangular(
            factor, covariance(kernel, inducing, rows), upper=False
        )
        left = covariance(kernel, rows, diag=True) - found.square().sum(-2)
        return found, left.clamp_min(0) + (effect if self.training else 0.0)

    def forward(
        self,
        x: Tensor,
        inducing_points: Tensor,
        inducing_values: Tensor,
        variational_inducing_covar: LinearOperator | None = None,
        diag: bool = True,
        marginal: bool = False,
        **kwargs: Any,
    ) -> MultivariateNormal:
        """Return the posterior at rows; in training and with ``marginal``, only its variances."""
        projected, left = self.projected(x)
        mean = self.model.mean_module(x) + (projected.mT @ inducing_values.unsqueeze(-1)).squeeze(
            -1
        )
        assert variational_inducing_covar is not None
        spread = projected.mT @ variational_inducing_covar.root_decomposition().root.to_dense()
        if marginal or (self.training and diag):
            variance = spread.square().sum(-1) + (0.0 if left is None else left)
            return MultivariateNormal(mean, DiagLinearOperator(variance))
        within = covariance(self.model.covar_module, self.model.held(x))
        full = within - projected.mT @ projected + spread @ spread.mT
        return ExactMultivariateNormal(mean, to_linear_operator(full))
