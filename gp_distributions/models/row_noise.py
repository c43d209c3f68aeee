"""Noise whose variance depends on the distributions, which likelihoods find as rows."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.distances.embedded_rows import Rows


class RowNoiseLikelihood(GaussianLikelihood):
    """Gaussian noise with a variance for each row, which a subclass computes.

    Call the likelihood with the rows, ``likelihood(distribution, rows)``. They may be omitted for
    distributions that a :class:`DistributionGP` returns, because these carry their rows.
    """

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variances of ``batch_shape x N x width`` rows, ``batch_shape x N``."""
        raise NotImplementedError

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """Return the distribution of noisy observations, given that of the function."""
        rows = getattr(function_dist, "rows", None)
        return super().marginal(function_dist, *(params if rows is None else (rows,)), **kwargs)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, **kwargs: Any
    ) -> DiagLinearOperator:
        if kwargs.get("noise") is not None:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        if not params:
            raise ValueError(
                "Expected the distributions as well, on which the noise depends. Call "
                "likelihood(distribution, rows)."
            )
        noise = self.variances(params[0] if isinstance(params[0], Rows) else params[0][0])
        return DiagLinearOperator(noise.expand(torch.broadcast_shapes(noise.shape, base_shape)))
