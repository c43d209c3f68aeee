"""The models of a search: one, or a mixture of several that are compared at each step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from botorch.models import ModelList
from botorch.models.model import Model
from botorch.models.transforms.input import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.bayesopt.parts import Search
from gp_distributions.bayesopt.priors import median_lengthscale_prior
from gp_distributions.bayesopt.searches import DesignSearch
from gp_distributions.distances.base import Distance
from gp_distributions.fitting import fit
from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.judging.leave_one_out import left_out
from gp_distributions.kernels.candidates import as_kernel, copied, distances_of
from gp_distributions.kernels.defaults import default_kernels
from gp_distributions.models import DistributionGP, MixtureModel
from gp_distributions.numerics.predictions import pseudo_bma_weights
from gp_distributions.warnings import ConvergenceWarning, UndeterminedWarning, silenced, warn

MakeModel: TypeAlias = Callable[[Tensor, Tensor], DistributionGP]
Candidate: TypeAlias = Kernel | Distance | MakeModel
Candidates: TypeAlias = Mapping[str, Candidate] | Sequence[Candidate]

# Members of a smaller weight are not evaluated.
_NEGLIGIBLE = 0.01
# Hyperparameters are older than this share of the evaluations at no time, nor than _LONGEST of them.
_SHARE, _LONGEST = 5, 5


def fitted(
    make: MakeModel,
    X: Tensor,
    Y: Tensor,
    *,
    restarts: int,
    seed: int,
    choose: Callable[..., None] | None = None,
) -> DistributionGP:
    """Make a model and fit it; if the fit fails, return the model with initial hyperparameters.

    Args:
        make: The function that makes the model.
        X: The inputs, ``T x width``.
        Y: The outcomes, ``T x outcomes``.
        restarts: Number of additional starts.
        seed: Random seed for the starts.
        choose: Function that chooses the metric of the fitted model, in place.

    Warns:
        ConvergenceWarning: If the fit fails or does not converge.
    """
    try:
        model = fit(make(X, Y), restarts=restarts, seed=seed, progress=False)
        if choose is not None:
            choose(model, seed=seed)
        return model
    except (NanError, NotPSDError) as error:
        warn(
            f"The fit to {len(X)} evaluations failed ({error}). The search goes on with the initial "
            "hyperparameters of the model.",
            ConvergenceWarning,
        )
    model = make(X, Y)
    start_at_medians(model)
    return model.eval()


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
    _values: dict[tuple[Any, ...], list[Tensor]] = field(init=False, default_factory=dict)

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
        models: list[DistributionGP] = []
        densities: list[Tensor] = []
        failure: Exception | None = None
        for place, (name, candidate) in enumerate(copied(self.candidates).items()):
            model = self._fitted(candidate, place, X, y)
            try:
                density = left_out(model, y).log_density
                if not density.isfinite().all():
                    raise NanError("the log density of an evaluation is not finite")
            except (NanError, NotPSDError) as error:
                failure = error
                message = f"Candidate {name!r} is left out of the mixture of models ({error})."
                warn(message, ConvergenceWarning)
            else:
                models.append(model)
                densities.append(density)
        if failure is not None and not models:
            raise failure
        weights = pseudo_bma_weights(torch.stack(densities, dim=-1), seed=self.seed)
        # Members without weight stay, so that a pool keeps the distances of their clouds.
        return MixtureModel(models, weights.where(weights >= _NEGLIGIBLE, 0.0))

    def _fitted(self, candidate: Candidate, place: int, X: Tensor, y: Tensor) -> DistributionGP:
        """Return the model of a candidate, whose turns depend on its place among all."""
        options: dict[str, Any] = {"restarts": self.restarts, "seed": self.seed}
        if not isinstance(candidate, Kernel | Distance):
            return fitted(
                candidate, X, y, **options
            )  # its parameters may depend on the evaluations
        size = _fitted_size(len(X), place)
        key = place, *(data[:size].cpu().numpy().tobytes() for data in (X, y))
        if key not in self._values:
            make = partial(self._with_kernel, copy.deepcopy(candidate))
            first = fitted(make, X[:size], y[:size], **options)
            self._values[key] = [parameter.detach().clone() for parameter in first.parameters()]
            while len(self._values) > len(self.candidates) * self.outcomes:
                del self._values[next(iter(self._values))]
        model = self._with_kernel(candidate, X, y)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), self._values[key], strict=True):
                parameter.copy_(value)
        return model.eval()

    def _with_kernel(self, candidate: Kernel | Distance, X: Tensor, Y: Tensor) -> DistributionGP:
        kernel, transform = as_kernel(candidate), self.search.input_transform
        if isinstance(self.search, DesignSearch) and not distances_of(kernel):
            transform = Normalize(X.shape[-1], bounds=self.search.bounds.to(X))
        return median_lengthscale_prior(DistributionGP(X, Y, kernel, input_transform=transform))


def read_candidates(given: Any, search: Search, seed: int) -> dict[str, Candidate]:
    """Check the candidates for the model of a search, and return them by name.

    Raises:
        TypeError: If there is something else than kernels, distances and functions.
        ValueError: If there are no candidates, or a kernel has a batch shape.
    """
    if isinstance(given, str) and given == "compare":
        return dict(default_candidates(search, seed))
    if not isinstance(given, Mapping | list | tuple):
        raise TypeError(
            'Expected model as a function, "compare", or a list or dictionary of kernels, got '
            f"{given!r:.80}. Pass a single kernel in a list."
        )
    candidates = dict(given if isinstance(given, Mapping) else enumerate(given))
    if not candidates:
        raise ValueError("Expected at least one kernel in model, got none.")
    for name, candidate in candidates.items():
        if not callable(candidate):
            raise TypeError(
                f"Expected model[{name!r}] as a kernel, a distance or a function that makes a model, "
                f"got {type(candidate).__name__}."
            )
        if isinstance(candidate, Kernel) and candidate.batch_shape:
            raise ValueError(
                f"Expected model[{name!r}] as a kernel without a batch shape, as each outcome has a "
                f"copy, got one of batch shape {tuple(candidate.batch_shape)}."
            )
    return {str(name): candidate for name, candidate in candidates.items()}


def default_candidates(search: Search, seed: int) -> dict[str, Kernel]:
    """Make the kernels to compare in a search.

    They are the :func:`default_kernels` of the clouds of a pool, of the first clouds of a free search,
    or of the shapes of random designs. Searches of designs add two kernels of the designs themselves:
    BoTorch's default, which has a Gaussian profile, and the same with Matern 5/2.

    Args:
        search: The search.
        seed: Random seed for the kernels.

    Returns:
        The kernels by name.

    Raises:
        ValueError: If the search is of another kind, or the kind or dimension of its clouds is not
            known.
    """
    kernels: dict[str, Kernel] = {}
    if isinstance(search, DesignSearch):
        for name in ("gaussian", "matern52"):
            kernels[f"designs {name}"] = get_covar_module_with_dim_scaled_prior(
                ard_num_dims=search.bounds.shape[-1], use_rbf_kernel=name == "gaussian"
            )
        if search.input_transform is None:
            return kernels
    if search.clouds is not None:
        return default_kernels(search.clouds, seed=seed) | kernels
    raise ValueError(
        "Expected a PoolSearch of distributions, a DesignSearch with dim= or a FreeSearch for "
        f'model="compare", got {type(search).__name__}. Pass kernels by name, such as '
        "model={'sw2': kernel, 'mmd': another}."
    )


def _fitted_size(count: int, place: int) -> int:
    """Return the number of evaluations to which a candidate is fitted, which never becomes smaller."""
    return max(
        size - (size - place) % min(max(size // _SHARE, 1), _LONGEST)
        for size in range(1, count + 1)
    )
