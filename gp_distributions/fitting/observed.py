"""Marginal likelihoods whose evaluations are counted and compared while a fit runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from torch import Tensor


@dataclass
class Record:
    """The best hyperparameters so far, which an interrupted fit keeps.

    Attributes:
        bar: A progress bar of tqdm, which counts the evaluations.
        best: The values of all parameters of the model.
        largest: The marginal likelihood there.
    """

    bar: Any
    best: list[Tensor]
    largest: float = -math.inf

    def see(self, model: ExactGP, value: float) -> None:
        """Take note of the marginal likelihood of a model."""
        if value > self.largest:
            self.largest, self.best = value, values_of(model)
        self.bar.set_postfix({"best": f"{self.largest:.4f}"}, refresh=False)
        self.bar.update()


class ObservedLikelihood(ExactMarginalLogLikelihood):
    """Marginal likelihood of a model that enters its values in a record.

    Args:
        model: Model with a likelihood.
        record: The record.
    """

    def __init__(self, model: ExactGP, record: Record) -> None:
        super().__init__(model.likelihood, model)
        self.record = record

    def forward(
        self, function_dist: MultivariateNormal, target: Tensor, *params: Any, **kwargs: Any
    ) -> Tensor:
        """Return the marginal likelihood per cloud, as GPyTorch does."""
        value: Tensor = super().forward(function_dist, target, *params, **kwargs)
        self.record.see(self.model, value.detach().sum().item())
        return value


def values_of(model: ExactGP) -> list[Tensor]:
    """Return copies of the values of all parameters of a model."""
    return [parameter.detach().clone() for parameter in model.parameters()]
