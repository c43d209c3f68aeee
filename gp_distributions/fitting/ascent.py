"""Maximisation of a marginal likelihood from several starts, those of many clouds on a subset first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from botorch.models import MultiTaskGP
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor
from tqdm import tqdm

from gp_distributions.fitting.concentrated import ConcentratedLikelihood, has_concentrated
from gp_distributions.fitting.concentrated_classes import (
    ConcentratedClasses,
    has_concentrated_classes,
)
from gp_distributions.fitting.lbfgs import LOOSE, Minimum, Pair, minimise
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise
from gp_distributions.rows.clouds import random_order
from gp_distributions.warnings import ConvergenceWarning, warn

# Progress bars of fits appear after so many seconds.
_PATIENCE = 3.0
#: Models of more clouds are fitted to a random subset first, of this size.
LARGE, SUBSET = 1000, 500
# Maxima on the subset are the same if their likelihoods per cloud differ by less than _SAME. On all
# clouds, their likelihoods grow by less than _GAIN: by a few parameters over the size of the subset.
_SAME, _GAIN = 1e-4, 0.015
_LOSS = attrgetter("loss")
# Likelihoods whose parameters do not depend on the number of clouds.
_LIKELIHOODS = (GaussianLikelihood, SamplingNoiseLikelihood, SharedNoise)
# Options of users.
_OPTIONS = ("maxiter", "ftol", "gtol")


class Maximum(NamedTuple):
    """A maximum of the marginal likelihood, and the values of all parameters of the model there."""

    minimum: Minimum
    values: list[Tensor]

    @property
    def loss(self) -> float:
        """The loss there."""
        return self.minimum.loss


class Ascent:
    """Maximisation of marginal likelihoods per cloud.

    Args:
        model: The model.
        tick: Function that is called at each evaluation.
        options: Options of :func:`minimise`.

    Attributes:
        best: The best values of all parameters so far, which an interrupted fit keeps.
    """

    def __init__(
        self, model: ExactGP, tick: Callable[[], object], options: dict[str, Any] | None
    ) -> None:
        self.model, self.tick, self.options = model, tick, options or {}
        self.best = values_of(model)
        self.lowest = math.inf

    def maxima(
        self,
        model: ExactGP,
        starts: Sequence[list[Tensor]],
        *,
        pairs: Sequence[Pair] = (),
        loose: bool = False,
    ) -> list[Maximum]:
        """Maximise the marginal likelihood from each start; leave out those that fail.

        Args:
            model: The model, or one that shares its parameters.
            starts: Values of all parameters.
            pairs: Estimate of the curvature there.
            loose: Whether to end where the gain is below 1e-3 nats per cloud, unless options say more.
        """
        options = LOOSE | self.options if loose else self.options
        mll = objective(model)
        found: list[Maximum] = []
        for start in starts:
            set_values(model, start)
            try:
                minimum = self._maximum(mll, pairs, options)
            except (NanError, NotPSDError) as error:
                failure = error
                continue
            found.append(Maximum(minimum, values_of(model)))
        if not found:
            set_values(model, starts[0])
            raise failure
        return found

    def _maximum(
        self, mll: MarginalLogLikelihood, pairs: Sequence[Pair], options: dict[str, Any]
    ) -> Minimum:
        """Maximise the marginal likelihood from the current values."""
        concentrated = _concentrated(mll.model)
        if concentrated is not None:
            parameters, bounds = concentrated.parameters, concentrated.bounds
        else:
            parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
        if not parameters:
            return Minimum(self.loss(mll).item(), converged=True, pairs=[])
        size = sum(parameter.numel() for parameter in parameters.values())
        # A fold may have fewer components than the fit whose curvature is passed.
        known = [pair for pair in pairs if len(pair[0]) == size]
        if isinstance(concentrated, ConcentratedLikelihood) and not known:
            known = concentrated.curvature()
        loss = partial(self.loss, mll, concentrated)
        minimum = minimise(loss, parameters, bounds, pairs=known, **options)
        with torch.no_grad():
            if concentrated is not None:
                concentrated()  # sets means, outputscales and noise at the minimum
            elif _integrates_level(mll.model):
                level = mll.model.conditioned().level.squeeze(-1)
                mll.model.mean_module.raw_constant.add_(level)
        return minimum

    def loss(
        self, mll: MarginalLogLikelihood, concentrated: Callable[[], Tensor] | None = None
    ) -> Tensor:
        """Return the negative sum of the marginal likelihoods of all outputs, or of their bound.

        Args:
            mll: The marginal likelihood.
            concentrated: The same at the best means and outputscales, which this sets.
        """
        self.tick()
        if concentrated is not None:
            loss = -concentrated()
        else:
            model = mll.model
            known = getattr(model, "train_known", {})
            tasks = model.train_inputs if isinstance(model, MultiTaskGP) else ()
            loss = -mll(model(*model.train_inputs), model.train_targets, *tasks, **known).sum()
        self.see(loss.item())
        return loss

    def see(self, loss: float) -> None:
        """Keep the values of the parameters if the loss is the lowest so far."""
        if loss < self.lowest:
            self.lowest, self.best = loss, values_of(self.model)


class _RestrictedLikelihood(ExactMarginalLogLikelihood):
    """The marginal likelihood, restricted to contrasts of targets if the level is integrated."""

    def forward(self, function_dist: Any, target: Tensor, *params: Any, **kwargs: Any) -> Tensor:
        if not _integrates_level(self.model):
            return super().forward(function_dist, target, *params, **kwargs)
        noisy = self.likelihood(function_dist, *params, **kwargs)
        density = self._add_other_terms(noisy.log_prob(target, level=True), params)
        return density / target.shape[-1]


def _integrates_level(model: Any) -> bool:
    return isinstance(model, DistributionGP) and model.integrates_level


@contextmanager
def ascending(
    model: ExactGP | ApproximateGP,
    description: str,
    options: dict[str, Any] | None,
    *,
    progress: bool,
) -> Iterator[Ascent]:
    """Fit a model in training mode within a ``with`` block, after which it is in evaluation mode.

    If the block is interrupted, the model keeps the best values found so far.
    """
    for name in options or {}:
        if name not in _OPTIONS:
            raise TypeError(
                f"Expected options of L-BFGS from ({', '.join(_OPTIONS)}), got {name!r}."
            )
    bar = tqdm(desc=description, unit=" evaluations", delay=_PATIENCE, disable=not progress)
    ascent = Ascent(model, bar.update, options)
    try:
        model.train()
        with bar:
            yield ascent
    except BaseException as error:  # an interrupt, or an exception with which a signal ends the fit
        set_values(model, ascent.best)
        for module in model.modules() if isinstance(error, NotPSDError) else ():
            error.args = (f"{error} {getattr(module, 'finding', '')}".strip(),)
        raise
    finally:
        model.eval()


def _concentrated(model: Any) -> ConcentratedLikelihood | ConcentratedClasses | None:
    """Return the marginal likelihood at the best means, if they can be computed."""
    if has_concentrated(model):
        return ConcentratedLikelihood(model)
    return ConcentratedClasses(model) if has_concentrated_classes(model) else None


def warn_unless_converged(best: Maximum) -> None:
    """Warn of a fit that did not converge."""
    if not best.minimum.converged:
        warn(
            "The fit did not converge; the hyperparameters are the best found. Try restarts=5, or "
            'continue from them with fit(model, init="current").',
            ConvergenceWarning,
        )


def objective(model: ExactGP | ApproximateGP) -> MarginalLogLikelihood:
    """Return the marginal likelihood per cloud, or its lower bound in variational models."""
    if isinstance(model, ApproximateGP):
        return VariationalELBO(model.likelihood, model, num_data=len(model.train_targets))
    mll = _RestrictedLikelihood(model.likelihood, model)
    mll._load_state_dict_pre_hooks.clear()  # a reference to itself, and so to the model: see Regression
    return mll


def values_of(model: ExactGP) -> list[Tensor]:
    """Return copies of the values of all parameters of a model."""
    return [parameter.detach().clone() for parameter in model.parameters()]


@torch.no_grad()
def set_values(model: ExactGP, values: Sequence[Tensor]) -> None:
    """Set the values of all parameters of a model."""
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.copy_(value)


def has_subsets(model: ExactGP) -> bool:
    """Whether there are many clouds, of which a subset has a likelihood with about the same maxima.

    It has for the regression models of this package with fixed distances and learned noise.
    """
    return (
        model.train_targets.shape[-1] > LARGE
        and isinstance(model, DistributionGP)
        and type(model.likelihood) in _LIKELIHOODS
        and not any(
            parameter.requires_grad
            for kernel, _ in distribution_kernels(model.covar_module)
            for parameter in kernel.distance.parameters()
        )
    )


def climb(
    ascent: Ascent,
    starts: Sequence[list[Tensor]],
    *,
    seed: int,
    with_first: bool = False,
    pairs: Sequence[Pair] = (),
    loose: bool = False,
) -> Maximum:
    """Maximise the marginal likelihood from all starts, and leave the model at the best result.

    Args:
        ascent: The maximisation.
        starts: Values of all parameters.
        seed: Random seed of the subset from which a fit of many clouds starts.
        with_first: Whether the first start is a start of all clouds as well.
        pairs: Estimate of the curvature at the starts. A fit of many clouds finds its own.
        loose: Whether another fit follows. One of many clouds ends where it always does.
    """
    if stays_at_start(ascent.model):
        best = _at_targets(ascent, starts[0])
    elif has_subsets(ascent.model):
        best = _from_subset(ascent, starts, seed=seed, with_first=with_first)
    else:
        found = ascent.maxima(ascent.model, starts, pairs=pairs, loose=loose)
        best = min(found, key=_LOSS)
    set_values(ascent.model, best.values)
    return best


def stays_at_start(model: ExactGP) -> bool:
    """Whether targets are all equal, which would be likeliest if the function did not vary at all.

    The model, which is free to learn that, then stays at its start but for the mean.
    """
    targets = model.train_targets
    equal = bool((targets == targets[..., :1]).all())
    return equal and has_concentrated(model) and model.integrates_level


def _at_targets(ascent: Ascent, start: list[Tensor]) -> Maximum:
    """Set a model to a start, and its mean to targets that are all equal."""
    model = ascent.model
    set_values(model, start)
    with torch.no_grad():
        model.mean_module.raw_constant.copy_(model.train_targets[..., 0])
        loss = ascent.loss(objective(model)).item()
    return Maximum(Minimum(loss, converged=True, pairs=[]), values_of(model))


def _from_subset(
    ascent: Ascent, starts: Sequence[list[Tensor]], *, seed: int, with_first: bool
) -> Maximum:
    """Maximise the marginal likelihood of all clouds from the maxima on a subset of them.

    The most likely candidate on all clouds comes first. Others follow unless they are the same maximum,
    or too far below the best to reach it. If the likelihood grows much more than it should, or no
    candidate leads to a maximum, the fit goes on from all starts.
    """
    model, outputs = ascent.model, max(1, ascent.model.train_targets.shape[:-1].numel())
    smaller = on_subset(model, seed=seed)
    candidates = [(found.values, found.minimum.pairs) for found in ascent.maxima(smaller, starts)]
    ascent.lowest = math.inf  # losses on the subset do not compare with those on all clouds
    if with_first:
        candidates.append((starts[0], []))
    mll = objective(model)
    losses: list[float] = []
    for values, _ in candidates:
        set_values(model, values)
        try:
            with torch.no_grad():
                losses.append(ascent.loss(mll).item())
        except (NanError, NotPSDError):
            losses.append(math.inf)
    found: list[Maximum] = []
    last = -math.inf
    for loss, (values, pairs) in sorted(zip(losses, candidates, strict=True), key=lambda x: x[0]):
        reachable = not found or (
            loss - last > _SAME * outputs and loss - min(found, key=_LOSS).loss < _GAIN * outputs
        )
        if math.isfinite(loss) and reachable:
            try:
                found += ascent.maxima(model, [values], pairs=pairs)
            except (NanError, NotPSDError):
                continue
            if loss - found[-1].loss > _GAIN * outputs:
                # The subset was a poor guide, so all clouds may have maxima that it lacks.
                return min([*found, *ascent.maxima(model, starts)], key=_LOSS)
        last = loss
    return min(found or ascent.maxima(model, starts), key=_LOSS)


def on_subset(model: DistributionGP, *, seed: int, most: int | None = None) -> DistributionGP:
    """Return a model of a random subset of many clouds that shares all parameters with ``model``.

    A model of few clouds is returned as it is.

    Args:
        model: The model.
        seed: Random seed of the subset.
        most: Largest number of clouds. Default: 500 of more than 1,000.
    """
    above, size = (LARGE, SUBSET) if most is None else (most, most)
    number = model.train_targets.shape[-1]
    if number <= above:
        return model
    order = random_order(model.compared_rows.rows, seed=seed)
    return model.subset(order[:size].sort().values)
