"""Mixtures of models with several kernels, compared anew whenever a search has new evaluations."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from botorch.models import ModelList
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform, Normalize
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.bayesopt.fitted import MakeModel, fitted
from gp_distributions.bayesopt.priors import median_lengthscale_prior
from gp_distributions.bayesopt.search import Search
from gp_distributions.bayesopt.searches import DesignSearch
from gp_distributions.distances.base import Distance
from gp_distributions.kernels.candidates import as_scaled_kernel, copied
from gp_distributions.models import DistributionGP, MixtureModel
from gp_distributions.numerics.predictions import pseudo_bma_weights
from gp_distributions.scoring import left_out
from gp_distributions.warnings import ConvergenceWarning, UndeterminedWarning, silenced, warn

Candidate: TypeAlias = Kernel | Distance | MakeModel
Candidates: TypeAlias = Mapping[str, Candidate] | Sequence[Candidate]

# Members of a smaller weight are not evaluated.
_NEGLIGIBLE = 0.01
# Hyperparameters are older than this share of the evaluations at no time, nor than _LONGEST of them.
_SHARE, _LONGEST = 5, 5


@dataclass(frozen=True, eq=False)
class ComparedModels:
    """Models with several kernels, as one mixture whose weights say how well each predicts.

    Each candidate predicts each evaluation from all others in closed form. The weights are those of
    :func:`pseudo_bma_weights` of these leave-one-out log densities. To save time, kernels take turns:
    after 10 evaluations, the hyperparameters of each are found anew only at every second to fifth, from
    the evaluations up to there. The mixture depends on the evaluations only and not on earlier
    mixtures, so a search that is resumed continues as it would have.

    Args:
        candidates: Kernels, distances or functions that make models, by name. They stay as they are.
        search: The search, whose candidates are the inputs of the models.
        outcomes: Number of outcomes.
        restarts: Number of additional starts of each fit.
        seed: Random seed for the fits.
    """

    candidates: Mapping[str, Candidate]
    search: Search
    outcomes: int
    restarts: int
    seed: int
    _values: dict[tuple[int, bytes, bytes], list[Tensor]] = field(init=False, default_factory=dict)

    def __call__(self, X: Tensor, Y: Tensor) -> Model:
        """Return the mixture of all candidates, fitted; for several outcomes, one for each.

        Args:
            X: The inputs, ``T x width``.
            Y: The outcomes, ``T x outcomes``.

        Raises:
            NotPSDError: If every candidate fails, the last one at a covariance matrix.
            NanError: If every candidate fails, the last one at a log density that is not finite.

        Warns:
            ConvergenceWarning: If a fit fails or does not converge.
        """
        # What each leaves out shows what it warns of.
        with silenced(UndeterminedWarning):
            mixtures = [self._mixture(X, y.unsqueeze(-1)) for y in Y.unbind(-1)]
        return mixtures[0] if len(mixtures) == 1 else ModelList(*mixtures)

    def _mixture(self, X: Tensor, y: Tensor) -> MixtureModel:
        candidates = copied(self.candidates)
        models: list[DistributionGP] = []
        densities: list[Tensor] = []
        failure: Exception | None = None
        for place, (name, candidate) in enumerate(candidates.items()):
            model = self._fitted(candidate, place, X, y)
            try:
                densities.append(_log_density(model, y))
            except (NanError, NotPSDError) as error:
                failure = error
                message = f"Candidate {name!r} is left out of the mixture of models ({error})."
                warn(message, ConvergenceWarning)
                continue
            models.append(model)
        if failure is not None and not models:
            raise failure
        weights = pseudo_bma_weights(torch.stack(densities, dim=-1), seed=self.seed)
        # Members without weight stay, so that a pool keeps the distances of their clouds.
        return MixtureModel(models, weights.where(weights >= _NEGLIGIBLE, 0.0))

    def _fitted(self, candidate: Candidate, place: int, X: Tensor, y: Tensor) -> DistributionGP:
        """Return the model of a candidate, whose turns depend on its place among all."""
        make, options = self._maker(candidate), {"restarts": self.restarts, "seed": self.seed}
        count = len(X)
        size = _fitted_size(count, place)
        if not isinstance(
            candidate, Kernel | Distance
        ):  # its parameters may depend on the evaluations
            return fitted(make, X, y, **options)
        key = place, y[:size].cpu().numpy().tobytes(), X[:size].cpu().numpy().tobytes()
        values = self._values.get(key)
        if values is None:
            make_first = make if size == count else self._maker(copy.deepcopy(candidate))
            first = fitted(make_first, X[:size], y[:size], **options)
            values = [parameter.detach().clone() for parameter in first.parameters()]
            self._values[key] = values
            while len(self._values) > len(self.candidates) * self.outcomes:
                del self._values[next(iter(self._values))]
            if size == count:
                return first
        model = make(X, y)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), values, strict=True):
                parameter.copy_(value)
        return model.eval()

    def _maker(self, candidate: Candidate) -> MakeModel:
        if isinstance(candidate, Kernel | Distance):
            return partial(self._with_kernel, as_scaled_kernel(candidate))
        return candidate

    def _with_kernel(self, kernel: Kernel, X: Tensor, Y: Tensor) -> DistributionGP:
        transform: InputTransform | None = self.search.input_transform
        if isinstance(self.search, DesignSearch) and not _reads_shapes(kernel):
            transform = Normalize(X.shape[-1], bounds=self.search.bounds.to(X))
        return median_lengthscale_prior(DistributionGP(X, Y, kernel, input_transform=transform))


def read_candidates(given: object) -> dict[str, Candidate]:
    """Check candidates and return them by name.

    Raises:
        TypeError: If there is something else than kernels, distances and functions.
        ValueError: If there are no candidates, or a kernel has a batch shape.
    """
    named = isinstance(given, Mapping)
    if isinstance(given, Mapping):
        candidates = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        candidates = {str(place): candidate for place, candidate in enumerate(given)}
    else:
        raise TypeError(
            'Expected model as a function, "compare", or a list or dictionary of kernels, got '
            f"{given!r:.80}. Pass a single kernel in a list."
        )
    if not candidates:
        raise ValueError("Expected at least one kernel in model, got none.")
    for name, candidate in candidates.items():
        where = f"model[{name!r}]" if named else f"model[{name}]"
        if not (isinstance(candidate, Kernel | Distance) or callable(candidate)):
            raise TypeError(
                f"Expected {where} as a kernel, a distance or a function that makes a model, got "
                f"{type(candidate).__name__}."
            )
        if isinstance(candidate, Kernel) and candidate.batch_shape:
            raise ValueError(
                f"Expected {where} as a kernel without a batch shape, as each outcome has a copy, got "
                f"one of batch shape {tuple(candidate.batch_shape)}."
            )
    return candidates


def _log_density(model: DistributionGP, y: Tensor) -> Tensor:
    """Compute the leave-one-out log density of each evaluation.

    Raises:
        NanError: If one is not finite.
    """
    density = left_out(model, y).log_density
    bad = (~density.isfinite()).nonzero().flatten().tolist()
    if bad:
        raise NanError(f"the log density of evaluation {bad[0]} is {density[bad[0]].item()}")
    return density


def _fitted_size(count: int, place: int) -> int:
    """Return the number of evaluations to which a candidate is fitted, which never becomes smaller."""
    return max(
        size - (size - place) % min(max(size // _SHARE, 1), _LONGEST)
        for size in range(1, count + 1)
    )


def _reads_shapes(kernel: Kernel) -> bool:
    return any(isinstance(part, Distance) for part in kernel.modules())
