"""Predictions for clouds that models have not seen, with the scores of these predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor
from torch.distributions import Normal

from gp_distributions.numerics.densities import Mixture


@dataclass(frozen=True, eq=False)
class Predictions(ABC):
    """Predictive distributions of ``T`` targets: mixtures of those of ``K`` models.

    Attributes:
        weights: Weights of the models, ``K x T``, or ``K x 1`` if they are the same for all targets.
            A single model has the weight 1.
    """

    weights: Tensor

    @property
    @abstractmethod
    def of_models(self) -> Tensor:
        """Log densities, or log probabilities, of the targets under each model, ``K x T``."""

    @property
    def log_density(self) -> Tensor:
        """Log density, or log probability, of each target, a tensor of length ``T``."""
        return (self.of_models + self.weights.log()).logsumexp(0)

    def _averaged(self, values: Tensor) -> Tensor:
        """Return the weighted mean of ``K x T x ...`` values over models."""
        return (self.weights.unsqueeze(-1) * values).sum(0)

    @abstractmethod
    def scores(self) -> Mapping[str, float]:
        """Return further scores, by the names of the attributes of a :class:`ComparisonEntry`."""

    @classmethod
    def mixed(cls, members: Sequence[Self], weights: Tensor) -> Self:
        """Return the mixture of predictions for the same targets.

        Args:
            members: The predictions.
            weights: Their weights, which sum to one. Members of weight zero are left out.
        """
        kept = [i for i, weight in enumerate(weights.tolist()) if weight > 0]
        moments = {
            field.name: torch.cat([getattr(members[i], field.name) for i in kept])
            for field in fields(cls)
            if field.name not in ("weights", "targets")
        }
        each = [weights[i] * members[i].weights for i in kept]
        size = max(part.shape[-1] for part in each)
        mixed = torch.cat([part.expand(-1, size) for part in each])
        return replace(members[0], weights=mixed, **moments)

    @classmethod
    def joined(cls, parts: Sequence[Self], places: Sequence[Tensor]) -> Self:
        """Join predictions of a single model for parts of the targets.

        Args:
            parts: The predictions.
            places: The numbers of their targets, which together are a permutation.
        """
        order = torch.cat(list(places)).argsort()
        tensors = {
            field.name: torch.cat(
                [getattr(part, field.name) for part in parts], dim=axis
            ).index_select(axis, order)
            for field in fields(cls)
            if field.name != "weights"
            for axis in [0 if field.name == "targets" else 1]
        }
        return replace(parts[0], **tensors)


@dataclass(frozen=True, eq=False)
class NormalPredictions(Predictions):
    r"""Normal predictions of ``O`` outputs, which are independent under each model.

    Attributes:
        targets: The targets, ``T x O``.
        mean: The means, ``K x T x O``.
        std: The standard deviations of the targets, ``K x T x O``.
    """

    targets: Tensor
    mean: Tensor
    std: Tensor

    @classmethod
    def of_members(cls, targets: Tensor, found: Mixture) -> NormalPredictions:
        """Make predictions from ``T x O`` targets and the mixture of members for each, of one output."""
        moments = (part.movedim(-1, 0).double() for part in (found.location, found.scale))
        shape = (*targets.shape, found.location.shape[-1])
        weights = found.weights.double().expand(shape)[:, 0].mT
        return cls(weights, targets, *moments)

    @classmethod
    def of(cls, targets: Tensor, mean: Tensor, std: Tensor) -> NormalPredictions:
        """Make predictions of a single model from ``T`` or ``T x O`` targets, means and deviations."""
        columns = [value.detach().reshape(len(value), -1).double() for value in (mean, std)]
        targets = targets.detach().to(columns[0]).reshape(columns[0].shape)
        return cls(targets.new_ones(1, 1), targets, *(column.unsqueeze(0) for column in columns))

    @property
    def _normal(self) -> Normal:
        return Normal(self.mean, self.std, validate_args=False)

    @property
    def of_models(self) -> Tensor:
        """Log densities of the targets under each model, summed over the outputs, ``K x T``."""
        return self._normal.log_prob(self.targets).sum(-1)

    def covered(self, level: float = 0.95) -> Tensor:
        """Return whether each target lies in the central interval of its distribution, ``T x O``."""
        below = self._averaged(self._normal.cdf(self.targets))
        return (below - 0.5).abs() <= level / 2

    def scores(self) -> dict[str, float]:
        """Return root mean square error, coefficient of determination and coverage.

        They are averages over the outputs; the first is the root of the mean over all targets.
        """
        errors = self.targets - self._averaged(self.mean)
        variance = (self.targets - self.targets.mean(0)).square().mean(0)
        return {
            "rmse": errors.square().mean().sqrt().item(),
            "r2": (1 - errors.square().mean(0) / variance).mean().item(),
            "coverage": self.covered().double().mean().item(),
        }


@dataclass(frozen=True, eq=False)
class ClassPredictions(Predictions):
    """Class probabilities.

    Attributes:
        targets: The class indices, a tensor of length ``T``.
        probabilities: The probabilities of ``C`` classes, ``K x T x C``.
    """

    targets: Tensor
    probabilities: Tensor

    @classmethod
    def of(cls, targets: Tensor, probabilities: Tensor) -> ClassPredictions:
        """Make predictions of a single model from class indices and ``T x C`` probabilities."""
        probabilities = probabilities.detach().double()
        return cls(
            probabilities.new_ones(1, 1),
            targets.to(probabilities.device),
            probabilities.unsqueeze(0),
        )

    @property
    def of_models(self) -> Tensor:
        """Log probabilities of the classes of the targets under each model, ``K x T``."""
        index = self.targets.expand(len(self.probabilities), -1).unsqueeze(-1)
        return self.probabilities.gather(-1, index).squeeze(-1).log()

    def scores(self) -> dict[str, float]:
        """Return the accuracy of the most probable classes."""
        probabilities = self._averaged(self.probabilities)
        return {"accuracy": (probabilities.argmax(-1) == self.targets).double().mean().item()}
