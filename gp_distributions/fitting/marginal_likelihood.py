"""Fitting of hyperparameters by maximum marginal likelihood, from starts that suit the data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import singledispatch
from typing import Any, Literal, TypeAlias

import torch
from botorch.optim.closures import ForwardBackwardClosure
from botorch.optim.core import OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.optimize import LbfgsInvHessProduct
from torch import Tensor
from tqdm import tqdm

from gp_distributions.distances.base import Distance
from gp_distributions.fitting.cost import warn_of_cost
from gp_distributions.fitting.determination import warn_of_undetermined
from gp_distributions.fitting.lbfgs import Minimum, minimise
from gp_distributions.fitting.observed import ObservedLikelihood, Record, values_of
from gp_distributions.fitting.sampling_noise import learn_sampling_noise
from gp_distributions.fitting.scales import fixed_scales, learn_scales, learned_scales
from gp_distributions.fitting.starts import make_smooth, median_distances, scatter, start_at_medians
from gp_distributions.fitting.subsets import has_subsets, on_subset
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.described import described
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.warnings import ConvergenceWarning, JitterWarning, collected, warn

# Models of more clouds are fitted to a random subset first, of this size.
_LARGE, _SUBSET = 1000, 500
# Maxima on the subset are the same if their likelihoods per cloud differ by less than _SAME. On all
# clouds, their likelihoods grow by less than _GAIN: by a few parameters over the size of the subset.
_SAME, _GAIN = 1e-4, 0.015
# The progress bar appears after this many seconds.
_PATIENCE = 3.0
# What the progress bar says, to tell apart the fits of a function that makes several.
described_as: ContextVar[str] = ContextVar("described_as", default="Fitting")


@singledispatch
def fit(
    model: Any,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> Any:
    """Fit the hyperparameters of a model in place by maximising its marginal likelihood.

    The objective is the log marginal likelihood plus the log densities of the priors. It is computed by
    Cholesky factors for any number of clouds and maximised by L-BFGS. Distances whose parameters do not
    require a gradient are computed only once. If the likelihood is a :class:`SamplingNoiseLikelihood`,
    ``fit`` then calls :func:`learn_sampling_noise`. Hyperparameters that do not require a gradient stay
    as they are, and all starts satisfy the constraints. Scales of a :class:`ScaledDistance` that require
    a gradient are fixed at first. ``fit`` then learns them by :func:`learn_scales`, and fits the other
    hyperparameters again if they have changed.

    A :class:`DistributionGP` of more than 1,000 clouds whose distances are fixed is first fitted to a
    random subset of 500 clouds from all starts, and then to all clouds from the maxima found. This
    applies if the likelihood has one noise variance for each output, or is a
    :class:`SamplingNoiseLikelihood`. An interrupted fit keeps the best hyperparameters found so far.

    Args:
        model: A :class:`DistributionGP`, or any GPyTorch ``ExactGP`` with a ``covar_module`` and a
            ``likelihood``; or a :class:`SparseDistributionGP`, whose hyperparameters come from an exact
            model of 1000 random clouds. A sparse model takes two further options: ``client``, a client
            of ``dask.distributed`` whose workers form the sums, added in a fixed order; and
            ``checkpoint``, the path to a folder from which an interrupted fit is continued if it is
            started again with the same arguments.
        init: With ``"median"``, the lengthscale of every :class:`DistributionKernel` starts at the
            median distance between the training clouds, so that units do not matter. With
            ``"current"``, all hyperparameters start at their current values. Scales always do.
        restarts: Number of further starts; the best result is kept. The likelihood often has one
            maximum where all clouds are unrelated and another where the function is smooth. The first
            further start is smooth: lengthscales are multiplied by 10, outputscales by 100 and the noise
            by 10. The others multiply lengthscales and noise by random factors between 1/5 and 5.
        seed: Random seed for the starts, for the subset of a large model, and for the subsets from which
            sampling noise is learned.
        options: Options of ``scipy.optimize.minimize`` with L-BFGS-B, for example
            ``{"maxiter": 50}``.
        progress: Whether to show a progress bar if the fit takes more than a few seconds.

    Returns:
        The fitted model, in evaluation mode.

    Raises:
        TypeError: If ``model`` is not an ``ExactGP``.
        ValueError: If ``init`` is neither ``"median"`` nor ``"current"``, ``restarts`` or ``seed`` is
            negative, squared distances overflow or underflow, or several outputs share a parameter,
            which only :class:`SharedKernelGP` allows.
        NotPSDError: If every start leads to a covariance matrix that cannot be factorised.

    Warns:
        CostWarning: If there are more than 4,000 clouds, before the fit starts.
        ConvergenceWarning: If the optimisation from the best start did not converge.
        JitterWarning: If the covariance matrix at the fitted hyperparameters is not positive definite.
        UndeterminedWarning: If there are 10 to 100 clouds, and intervals would be at least twice as wide
            for all hyperparameters that are likely, not only the likeliest. Use
            :func:`integrate_hyperparameters`. Or if all training clouds coincide for a kernel.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, fit
        >>> points = torch.randn(12, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> model = DistributionGP(PointClouds(points), points.mean((-2, -1)))
        >>> model = fit(model, restarts=0)
        >>> bool(model.likelihood.noise < 0.01)
        True
    """
    maximise_likelihood(
        model, init=init, restarts=restarts, seed=seed, options=options, progress=progress
    )
    warn_of_undetermined(model)
    return model


@torch.inference_mode(False)
@torch.enable_grad()
def maximise_likelihood(
    model: Any,
    *,
    init: Literal["median", "current"],
    restarts: int,
    seed: int,
    options: dict[str, Any] | None,
    progress: bool,
) -> None:
    """Fit a model as :func:`fit` does, but do not ask whether the data determine the hyperparameters."""
    if not isinstance(model, ExactGP):
        raise TypeError(
            "Expected a DistributionGP or another ExactGP of GPyTorch, got "
            f"{described(model)}. Make one with DistributionGP(X, Y); fit the models of a list one "
            "by one."
        )
    if init not in ("median", "current"):
        raise ValueError(f'Expected init="median" or init="current", got {init!r}.')
    restarts, seed = integer(restarts, "restarts", least=0), integer(seed, "seed", least=0)
    _check_shapes(model)
    warn_of_cost(model)
    bar = tqdm(desc=described_as.get(), unit=" evaluations", delay=_PATIENCE, disable=not progress)
    record = Record(bar, values_of(model))
    mll = ObservedLikelihood(model, record)
    scaled = learned_scales(model)
    try:
        model.train()
        with bar, fixed_scales(scaled), collected(JitterWarning) as jitter:
            best, best_values = _best(mll, init, restarts, seed, options)
            _set_values(model, best_values)
            if scaled and learn_scales(model, scaled, seed=seed, tick=bar.update):
                record.largest = -math.inf  # values at other scales do not compare
                best, best_values = _best(mll, "current", restarts, seed, options)
                _set_values(model, best_values)
        if jitter:  # warn of jitter only at the final hyperparameters, not in line searches
            with torch.no_grad():
                mll(model(*model.train_inputs), model.train_targets)
        if isinstance(model.likelihood, SamplingNoiseLikelihood):
            learn_sampling_noise(model, seed=seed)
    except BaseException:  # an interrupt, or an exception with which a signal ends the fit
        _set_values(model, record.best)
        raise
    finally:
        model.eval()
    if not best.converged:
        warn(
            f"The fit did not converge ({best.message}); the hyperparameters are the best found. Try "
            'restarts=5, or continue from them with fit(model, init="current").',
            ConvergenceWarning,
        )


# A result of the optimiser, and the values of all parameters of the model.
_Found: TypeAlias = tuple[Minimum, list[Tensor]]


def _best(
    mll: ObservedLikelihood,
    init: str,
    restarts: int,
    seed: int,
    options: dict[str, Any] | None,
) -> _Found:
    """Maximise the marginal likelihood from all starts; return the best result and its parameters."""
    model = mll.model
    if init == "median":
        start_at_medians(model)
    else:
        median_distances(model)  # checks the distances and fills their caches
    starts = list(_starts(model, restarts, torch.Generator().manual_seed(seed)))
    if model.train_targets.shape[-1] <= _LARGE or not has_subsets(model):
        return min(_maxima(mll, starts, options), key=_loss)
    smaller = ObservedLikelihood(on_subset(model, _SUBSET, seed=seed), mll.record)
    maxima = _maxima(smaller, starts, options)
    mll.record.largest = -math.inf  # values on the subset do not compare with those on all clouds
    candidates = [(values, minimum.metric) for minimum, values in maxima]
    if init == "current":
        candidates.append((starts[0], None))
    return _polished(mll, candidates, starts, options)


def _starts(model: ExactGP, restarts: int, generator: torch.Generator) -> Iterator[list[Tensor]]:
    """Return the values of all parameters at each start."""
    first = values_of(model)
    yield first
    for restart in range(restarts):
        _set_values(model, first)
        if restart:
            scatter(model, generator)
        else:
            make_smooth(model)
        yield values_of(model)


def _maxima(
    mll: ObservedLikelihood,
    starts: Sequence[list[Tensor]],
    options: dict[str, Any] | None,
    **known: Any,
) -> list[_Found]:
    """Maximise the marginal likelihood from each start; leave out those that fail."""
    found: list[_Found] = []
    for start in starts:
        _set_values(mll.model, start)
        try:
            result = _maximise(mll, options, **known)
        except (NanError, NotPSDError) as error:  # a line search went too far
            failure = error
            continue
        found.append((result, values_of(mll.model)))
    if not found:
        _set_values(mll.model, starts[0])
        raise failure
    return found


def _polished(
    mll: ObservedLikelihood,
    candidates: Sequence[tuple[list[Tensor], LbfgsInvHessProduct | None]],
    starts: Sequence[list[Tensor]],
    options: dict[str, Any] | None,
) -> _Found:
    """Maximise the marginal likelihood of all clouds from the maxima on a subset of them.

    The most likely candidate on all clouds comes first. Others follow unless they are the same maximum,
    or too far below the best to reach it. If the likelihood grows much more than it should, or no
    candidate leads to a maximum, the fit goes on from all starts.
    """
    model, outputs = mll.model, max(1, mll.model.train_targets.shape[:-1].numel())
    losses: list[float] = []
    for values, _ in candidates:
        _set_values(model, values)
        try:
            with torch.no_grad():
                losses.append(-mll(model(*model.train_inputs), model.train_targets).sum().item())
        except (NanError, NotPSDError):
            losses.append(math.inf)
    found: list[_Found] = []
    last = -math.inf
    for i in sorted(range(len(losses)), key=losses.__getitem__):
        values, metric = candidates[i]
        if not math.isfinite(losses[i]):
            continue
        if not found or (
            losses[i] - last > _SAME * outputs
            and losses[i] - min(map(_loss, found)) < _GAIN * outputs
        ):
            try:
                found += _maxima(mll, [values], options, metric=metric)
            except (NanError, NotPSDError):
                continue
            if losses[i] - found[-1][0].loss > _GAIN * outputs:
                # The subset was a poor guide, so all clouds may have maxima that it lacks.
                return min([*found, *_maxima(mll, starts, options)], key=_loss)
        last = losses[i]
    return min(found or _maxima(mll, starts, options), key=_loss)


def _loss(found: _Found) -> float:
    return found[0].loss


def _check_shapes(model: ExactGP) -> None:
    """Check that the models of a batch share no parameter, since BoTorch fits each one separately."""
    shape = getattr(model, "_aug_batch_shape", torch.Size())
    if shape.numel() <= 1:
        return
    # Parameters of distances have no axis of outputs, even if their shapes look as if they had.
    distances = (module for module in model.modules() if isinstance(module, Distance))
    shared = {parameter for distance in distances for parameter in distance.parameters()}
    for name, parameter in model.named_parameters():
        own = parameter not in shared and parameter.shape[: len(shape)] == shape
        if parameter.requires_grad and not own:
            raise ValueError(
                f"Expected a {name} for each model in a batch of shape {tuple(shape)}, got one of "
                f"shape {tuple(parameter.shape)}. Make kernels with batch_shape={shape}, or use "
                "SharedKernelGP for outputs that share one kernel."
            )


def _maximise(
    mll: ObservedLikelihood,
    options: dict[str, Any] | None,
    metric: LbfgsInvHessProduct | None = None,
) -> Minimum:
    model = mll.model
    if getattr(model, "_aug_batch_shape", torch.Size()).numel() > 1:  # one fit for each output
        result = fit_gpytorch_mll_scipy(mll, options=options)
        converged = result.status == OptimizationStatus.SUCCESS
        return Minimum(float(result.fval), converged, result.message or result.status.name)
    if not any(parameter.requires_grad for parameter in mll.parameters()):
        with torch.no_grad():
            loss = -mll(model(*model.train_inputs), model.train_targets)
        return Minimum(float(loss.sum()), converged=True, message="All hyperparameters are fixed")
    parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
    closure = ForwardBackwardClosure(
        lambda: -mll(model(*model.train_inputs), model.train_targets), parameters
    )
    return minimise(closure, parameters, bounds, metric=metric, options=options)


def _set_values(model: ExactGP, values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)
