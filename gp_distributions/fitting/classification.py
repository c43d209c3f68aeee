"""Fitting of classifiers, and selection of their concentration and temperature by labels left out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from gp_distributions.fitting.ascent import ascending
from gp_distributions.fitting.atom_lengthscale import Lengthscale, lengthscales_to_try
from gp_distributions.fitting.choosing import choose_metric
from gp_distributions.fitting.geometry import choose_geometry
from gp_distributions.fitting.marginal_likelihood import fit, maximise_likelihood
from gp_distributions.fitting.scales import choose_scales, distances_to_scale
from gp_distributions.fitting.sparse import exact_model, fit_sparse
from gp_distributions.kernels.reading import default_distances
from gp_distributions.measures.arrays import positive
from gp_distributions.models.classification import ClassificationGP
from gp_distributions.models.distribution_gp import DistributionGP
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
    select = partial(
        _selected,
        model,
        concentrations=concentrations,
        temperatures=temperatures,
        options=options,
    )
    if model.chooses_metric:
        _choose(model, select, concentrations[len(concentrations) // 2], options)
    else:
        select().restore(model)
    return model


def _choose(
    model: Classifier,
    select: Callable[[], _Fitted],
    concentration: float,
    options: dict[str, Any],
) -> None:
    """Fit a classifier without a kernel, whose metric the labels choose.

    The pose of shapes and the factor of their normals are chosen first, at the given concentration.
    """
    given = {name: options[name] for name in ("seed", "options", "progress") if name in options}
    if options.get("init", "median") == "median":
        for distance in default_distances(model.covar_module):
            distance.scales.fill_(1.0)
    model.alpha_epsilon, model.temperature = concentration, 1.0
    exact = exact_model(model) if isinstance(model, SparseClassificationGP) else model
    with ascending(
        exact, "Choosing", given.get("options"), progress=given.get("progress", True)
    ) as ascent:
        choose_geometry(exact, seed=given.get("seed", 0), tick=ascent.tick)
    if isinstance(model, SparseClassificationGP):
        if distances_to_scale(exact):
            kept = {name: options[name] for name in ("init", "restarts") if name in options}
            maximise_likelihood(exact, **given, **kept, description="Fitting a sample")
            _choose_scales(exact, **given)
        select().restore(model)
        return
    model.ensemble = model.choice = None
    best = select()
    best.restore(model)
    if _choose_scales(model, **given):
        try:
            best = select()
        finally:
            best.restore(model)
    choose_metric(model, **given)


def _choose_scales(
    model: DistributionGP,
    *,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> bool:
    """Choose the scales of coordinates of a fitted model, and return whether they have changed."""
    if not distances_to_scale(model):
        return False
    with ascending(model, "Learning scales", options, progress=progress) as ascent:
        return choose_scales(model, seed=seed, tick=ascent.tick)


def _selected(
    model: Classifier,
    *,
    concentrations: Sequence[float],
    temperatures: Sequence[float],
    options: dict[str, Any],
) -> _Fitted:
    """Fit a classifier at each concentration, and return the best of these."""
    options = dict(options)
    maximise = fit_sparse if isinstance(model, SparseClassificationGP) else maximise_likelihood
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
                    state = copy.deepcopy(model.state_dict())
                    summed = model.summed() if isinstance(model, SparseClassificationGP) else None
                    best = _Fitted(density, alpha_epsilon, lengthscale, chosen, state, summed)
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
    state: dict[str, Any]
    summed: Summed | None

    def restore(self, model: Classifier) -> None:
        """Give a model the state and the sums."""
        model.alpha_epsilon = self.alpha_epsilon
        model.load_state_dict(self.state)
        model.temperature = self.temperature
        if isinstance(model, SparseClassificationGP) and self.summed is not None:
            model.take_sums(self.summed.features, self.summed.sums)
