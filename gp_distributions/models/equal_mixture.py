"""Equal mixtures of Gaussian processes on the same clouds, as one Gaussian with their moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from gp_distributions.models.exact_inference import ExactMultivariateNormal, Moments
from gp_distributions.models.regression import Regression
from gp_distributions.models.together import together


class EqualMixture(torch.nn.Module):
    r"""The Gaussian with the mean and the covariance of an equal mixture of posteriors.

    With the posteriors :math:`N(m_k, C_k)` of ``K`` members,

    .. math::
        m = \frac1K \sum_k m_k, \qquad C = \frac1K \sum_k \bigl(C_k + (m_k - m)(m_k - m)^\top\bigr).

    The noise variance is the average of those of the members.

    Args:
        members: Fitted models of the same clouds and targets, in the same units.
    """

    def __init__(self, members: Sequence[Regression]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)

    @property
    def models(self) -> list[Any]:
        """The members."""
        return list(self.members)

    @property
    def _weights(self) -> Tensor:
        return torch.full((len(self.members),), 1 / len(self.members), dtype=torch.float64)

    def forward(self, rows: Tensor) -> ExactMultivariateNormal:
        """Return the joint posterior at transformed rows."""
        with together():
            found: list[MultivariateNormal] = [model(rows) for model in self.models]
        means = torch.stack(torch.broadcast_tensors(*(each.mean for each in found)))
        covariances = [each.lazy_covariance_matrix.to_dense() for each in found]
        mean = means.mean(0)
        apart = ((means - mean) / len(found) ** 0.5).movedim(0, -1)
        within = torch.stack(torch.broadcast_tensors(*covariances)).mean(0)
        return ExactMultivariateNormal(mean, to_linear_operator(within + apart @ apart.mT))

    def conditioned(self) -> list[Any]:
        """Return what the predictions of each member need of the training clouds."""
        with together():
            return [model.conditioned() for model in self.models]

    def latent_marginals(self, rows: Tensor, given: list[Any]) -> Moments:
        """Return means and variances at transformed rows, ``... x N x outputs``."""
        with together():
            pairs = zip(self.models, given, strict=True)
            found = [model.latent_marginals(rows, known) for model, known in pairs]
        return mixed_moments(found, self._weights)

    def latent_left_out(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, variances and noise variances, ``... x T x outputs``, without each cloud."""
        found = [model.latent_left_out() for model in self.models]
        mean, variance = mixed_moments([each[:2] for each in found], self._weights)
        return mean, variance, _average([noise for *_, noise in found])

    def noise(self, rows: Tensor) -> Tensor:
        """Return noise variances at rows."""
        return _average([model.noise(rows) for model in self.models])

    def condition_on_observations(self, X: Any, Y: Any, **options: Any) -> EqualMixture:
        """Return the mixture of the members with further clouds and targets."""
        return EqualMixture(
            [model.condition_on_observations(X, Y, **options) for model in self.models]
        )


def mixed_moments(moments: Sequence[Moments], weights: Tensor) -> Moments:
    """Return the means and variances of mixtures from those of their members."""
    means, within = (torch.stack(part, dim=-1) for part in zip(*moments, strict=True))
    weights = weights.to(means)
    mean = means @ weights
    return mean, (within + (means - mean.unsqueeze(-1)).square()) @ weights


def _average(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*values)).mean(0)
