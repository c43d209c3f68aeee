"""Fitting of classifiers, and selection of their concentration and temperature by labels left out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import torch

from gp_distributions.fitting.ascent import ascending
from gp_distributions.fitting.atom_lengthscale import Lengthscale, lengthscales_to_try
from gp_distributions.fitting.geometry import choose_geometry
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.members import chosen
from gp_distributions.fitting.scales import choose_scales, distances_to_scale
from gp_distributions.fitting.sparse import exact_model, fit_sparse
from gp_distributions.fitting.stages import CONCENTRATION, run
from gp_distributions.kernels.reading import default_distances
from gp_distributions.measures.arrays import positive
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.sparse_classification import SparseClassificationGP
from gp_distributions.models.sparse_distribution_gp import Summed

# Temperatures to choose from, and the standard deviation of the logarithm before data are seen.
_TEMPERATURES = [4 ** (step / 12) for step in range(-12, 13)]
_SPREAD = 0.35

# With more clouds, maxima at different concentrations are close.
_MANY = 200

Classifier = TypeVar("Classifier", ClassificationGP, SparseClassificationGP)


@fit.register(ClassificationGP)
@fit.register(SparseClassificationGP)
@torch.inference_mode(False)
@torch.enable_grad()
def fit_classifier(
    model: Classifier,
    *,
    alpha_epsilons: Sequence[float] = (0.1, 0.01, 0.001),
    temperature: float | None = None,
    **options: Any,
) -> Classifier:
    r"""Fit a classifier in place and choose its concentration and its temperature; see :func:`fit`.

    If a kernel of atoms has one lengthscale, log probabilities of labels that are left out choose it, at
    the first concentration; see :func:`lengthscales_to_try`.

    Concentrations are fitted from the largest to the smallest. With more than 200 clouds, the first is
    fitted from all starts, and each of the others from the maximum before, which is close. Fewer clouds
    may have other maxima at each, so all start from the hyperparameters that the model has at the call.
    If a fit is interrupted, the best of the concentrations already fitted is kept.

    A model without a kernel then chooses scales of coordinates at the best concentration. If they
    change, all concentrations are fitted again. A sparse one chooses them before it is fitted, by an
    exact model of its sample. How shapes are compared is chosen before, at the middle concentration.

    Raises:
        ValueError: If ``alpha_epsilons`` is empty or contains a value that is not positive, if
            ``temperature`` is not positive, or if leave-one-out probabilities are NaN.
    """
    concentrations = sorted({positive(value, "alpha_epsilon") for value in alpha_epsilons})[::-1]
    if not concentrations:
        raise ValueError("Expected at least one concentration in alpha_epsilons.")
    temperatures = _TEMPERATURES if temperature is None else [positive(temperature, "temperature")]
    state = _State(model, concentrations, temperatures, options)
    for stage in _stages(model):
        stage(state)
    return model


def _stages(model: Classifier) -> tuple[Callable[[_State], Any], ...]:
    if not model.chooses_metric:
        return (_concentrations,)
    return _SPARSE if isinstance(model, SparseClassificationGP) else _DEFAULT


class _State:
    """What the stages of a fit of a classifier share.

    Args:
        model: The classifier.
        concentrations: The concentrations to try, from the largest to the smallest.
        temperatures: The temperatures to try.
        options: Options of the fits at each.

    Attributes:
        exact: The classifier, or an exact one of the sample of a sparse one, with the same modules.
        given: The options of all stages.
    """

    def __init__(
        self,
        model: Any,
        concentrations: Sequence[float],
        temperatures: Sequence[float],
        options: dict[str, Any],
    ) -> None:
        self.model, self.options = model, options
        self.concentrations, self.temperatures = concentrations, temperatures
        names = ("seed", "options", "progress")
        self.given = {name: options[name] for name in names if name in options}

    @cached_property
    def exact(self) -> Any:
        """The model in which kernels are chosen."""
        sparse = isinstance(self.model, SparseClassificationGP)
        return exact_model(self.model) if sparse else self.model

    @property
    def seed(self) -> int:
        """Random seed."""
        return int(self.given.get("seed", 0))

    def ascending(self, description: str) -> Any:
        """Return a context with the maximisation of the exact model."""
        options, progress = self.given.get("options"), self.given.get("progress", True)
        return ascending(self.exact, description, options, progress=progress)


def _geometry(state: _State) -> None:
    """Choose the pose of shapes and the factor of normals, at the middle concentration."""
    model, concentrations = state.model, state.concentrations
    if state.options.get("init", "median") == "median":
        for distance in default_distances(model.covar_module):
            distance.scales = [1.0]
    model.alpha_epsilon, model.temperature = concentrations[len(concentrations) // 2], 1.0
    with state.ascending("Choosing") as ascent:
        choose_geometry(state.exact, seed=state.seed, tick=ascent.tick)


def _sample(state: _State) -> None:
    """Fit the exact model of a sample whose scales are chosen next."""
    if distances_to_scale(state.exact):
        kept = {
            name: value for name, value in state.options.items() if name in ("init", "restarts")
        }
        run(state.exact, CONCENTRATION, **state.given, **kept, description="Fitting a sample")


def _concentrations(state: _State) -> None:
    """Fit the classifier at each concentration, and keep the best of these."""
    try:
        best = _selected(state)
    finally:
        state.model.eval()
    best.restore(state.model)


def _scales(state: _State) -> bool:
    """Choose the scales of coordinates, and return whether they have changed."""
    if not distances_to_scale(state.exact):
        return False
    with state.ascending("Learning scales") as ascent:
        return choose_scales(state.exact, seed=state.seed, tick=ascent.tick)


def _scales_of_all(state: _State) -> None:
    """Choose the scales of coordinates; if they change, fit all concentrations again."""
    if _scales(state):
        _concentrations(state)


def _choice(state: _State) -> None:
    """Say what the classifier is made of."""
    state.model.choice = chosen(state.model)


#: The stages of a classifier without a kernel, and of a sparse one.
_DEFAULT = (_geometry, _concentrations, _scales_of_all, _choice)
_SPARSE = (_geometry, _sample, _scales, _concentrations)


def _selected(state: _State) -> _Fitted:
    """Fit a classifier at each concentration, and return the best of these."""
    model, options = state.model, dict(state.options)
    concentrations, temperatures = state.concentrations, state.temperatures
    if isinstance(model, SparseClassificationGP):
        maximise: Callable[..., Any] = fit_sparse
    else:
        model.ensemble = model.choice = None
        maximise = partial(run, stages=CONCENTRATION)
    many = isinstance(model, SparseClassificationGP) or len(model.likelihood.labels) > _MANY
    start = copy.deepcopy(model.state_dict())
    best: _Fitted | None = None

    def settings(
        values: Sequence[Lengthscale | None],
    ) -> Iterator[tuple[Lengthscale | None, float]]:
        yield from ((each, concentrations[0]) for each in values)
        yield from ((best and best.lengthscale, each) for each in concentrations[1:])

    with lengthscales_to_try(model) as lengthscales:
        total = len(lengthscales) + len(concentrations) - 1
        try:
            for number, (lengthscale, alpha_epsilon) in enumerate(settings(lengthscales), start=1):
                if not many:
                    model.load_state_dict(start)
                elif best is not None:
                    options |= {"init": "current", "restarts": 0}
                if lengthscale is not None:
                    lengthscale.set()
                model.alpha_epsilon = alpha_epsilon
                model.temperature = temperatures[0] if len(temperatures) == 1 else 1.0
                step = f"Fitting alpha_epsilon={alpha_epsilon:g}, {number} of {total}"
                maximise(model, **options, description=step)
                density, chosen = _best_temperature(model, temperatures, options)
                if best is None or density > best.density:
                    values = copy.deepcopy(model.state_dict())
                    summed = model.summed() if isinstance(model, SparseClassificationGP) else None
                    best = _Fitted(density, alpha_epsilon, lengthscale, chosen, values, summed)
        except BaseException:
            if best is not None:
                best.restore(model)
            model.eval()
            raise
    assert best is not None
    return best


def _best_temperature(
    model: Classifier, temperatures: Sequence[float], options: dict[str, Any]
) -> tuple[float, float]:
    """Return the leave-one-out density at the best temperature, and that temperature."""
    names = ("client", "progress") if isinstance(model, SparseClassificationGP) else ()
    where = {name: options[name] for name in names if name in options}
    found = model.leave_one_out(temperatures=temperatures, **where)
    if found.isnan().any():
        raise ValueError(
            "Expected leave-one-out probabilities, got NaN at alpha_epsilon = "
            f"{model.alpha_epsilon}. Leave this concentration out, or use double precision."
        )
    # Labels whose probability is too small for a number count as the smallest.
    found = found.clamp_min(math.log(torch.finfo(found.dtype).tiny)).sum(0)
    logs = found.new_tensor(temperatures).log()
    best = (found - (logs / _SPREAD).square() / 2).max(0)
    return float(best.values), temperatures[int(best.indices)]


class _Fitted(NamedTuple):
    """A fitted classifier: its leave-one-out density, options, state, and sums if it is sparse."""

    density: float
    alpha_epsilon: float
    lengthscale: Lengthscale | None
    temperature: float
    values: dict[str, Any]
    summed: Summed | None

    def restore(self, model: Classifier) -> None:
        """Give a model the state and the sums."""
        model.alpha_epsilon = self.alpha_epsilon
        model.load_state_dict(self.values)
        model.temperature = self.temperature
        if isinstance(model, SparseClassificationGP) and self.summed is not None:
            model.take_sums(self.summed.features, self.summed.sums)
