"""Fitting of hyperparameters by maximum marginal likelihood, from starts that suit the data."""

from __future__ import annotations

from typing import Any, Literal

import torch
from botorch.optim.closures import ForwardBackwardClosure
from botorch.optim.core import OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.fitting.lbfgs import Minimum, minimise
from gp_distributions.fitting.sampling_noise import learn_sampling_noise
from gp_distributions.fitting.scales import fixed_scales, learn_scales, learned_scales
from gp_distributions.fitting.starts import make_smooth, median_distances, scatter, start_at_medians
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.numerics.cholesky import jitter_noted
from gp_distributions.rows.memory import unchanging_rows
from gp_distributions.warnings import ConvergenceWarning, warn


def fit(
    model: ExactGP,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> ExactGP:
    """Fit the hyperparameters of a model in place by maximising its marginal likelihood.

    The objective is the log marginal likelihood plus the log densities of the priors. It is computed by
    Cholesky factors for any number of clouds and maximised by L-BFGS. Distances whose parameters do not
    require a gradient are computed only once. If the likelihood is a :class:`SamplingNoiseLikelihood`,
    ``fit`` then calls :func:`learn_sampling_noise`. Hyperparameters that do not require a gradient stay
    as they are, and all starts satisfy the constraints. Scales of a :class:`ScaledDistance` that require
    a gradient are fixed at first. ``fit`` then learns them by :func:`learn_scales`, and fits the other
    hyperparameters again if they have changed.

    Args:
        model: A :class:`DistributionGP`, or any GPyTorch ``ExactGP`` with a ``covar_module`` and a
            ``likelihood``.
        init: With ``"median"``, the lengthscale of every :class:`DistributionKernel` starts at the
            median distance between the training clouds, so that units do not matter. With
            ``"current"``, all hyperparameters start at their current values. Scales always do.
        restarts: Number of further starts; the best result is kept. The likelihood often has one
            maximum where all clouds are unrelated and another where the function is smooth. The first
            further start is smooth: lengthscales are multiplied by 10, outputscales by 100 and the noise
            by 10. The others multiply lengthscales and noise by random factors between 1/5 and 5.
        seed: Random seed for the starts and for the subsets from which sampling noise is learned.
        options: Options of ``scipy.optimize.minimize`` with L-BFGS-B, for example
            ``{"maxiter": 50}``.

    Returns:
        The fitted model, in evaluation mode.

    Raises:
        TypeError: If ``model`` is not an ``ExactGP``.
        ValueError: If ``init`` is neither ``"median"`` nor ``"current"``, ``restarts`` is negative,
            squared distances overflow or underflow, or several outputs share a parameter, which only
            :class:`SharedKernelGP` allows.
        NotPSDError: If every start leads to a covariance matrix that cannot be factorised.

    Warns:
        ConvergenceWarning: If the optimisation from the best start did not converge.
        JitterWarning: If the covariance matrix at the fitted hyperparameters is not positive definite.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, fit
        >>> points = torch.randn(12, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> model = DistributionGP(PointClouds(points), points.mean((-2, -1)))
        >>> model = fit(model, restarts=0)
        >>> bool(model.likelihood.noise < 0.01)
        True
    """
    if not isinstance(model, ExactGP):
        raise TypeError(
            "Expected a DistributionGP or another ExactGP of GPyTorch, got "
            f"{type(model).__name__}. Make one with DistributionGP(X, Y); fit the models of a list one "
            "by one."
        )
    if init not in ("median", "current"):
        raise ValueError(f'Expected init="median" or init="current", got {init!r}.')
    if restarts < 0:
        raise ValueError(f"Expected restarts >= 0, got {restarts}.")
    _check_shapes(model)
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    scaled = learned_scales(model)
    with fixed_scales(scaled), unchanging_rows(), jitter_noted() as jitter:
        best, best_values = _best(model, mll, init, restarts, seed, options)
        _set_values(model, best_values)
        if scaled and learn_scales(model, scaled, seed=seed):
            best, best_values = _best(model, mll, "current", restarts, seed, options)
            _set_values(model, best_values)
    if jitter:  # warn of jitter only at the final hyperparameters, not in line searches
        with torch.no_grad():
            mll(model(*model.train_inputs), model.train_targets)
    if isinstance(model.likelihood, SamplingNoiseLikelihood):
        learn_sampling_noise(model, seed=seed)
    if not best.converged:
        warn(
            f"The fit did not converge ({best.message}); the hyperparameters are the best found. Try "
            'restarts=5, or continue from them with fit(model, init="current").',
            ConvergenceWarning,
        )
    return model.eval()


def _best(
    model: ExactGP,
    mll: ExactMarginalLogLikelihood,
    init: str,
    restarts: int,
    seed: int,
    options: dict[str, Any] | None,
) -> tuple[Minimum, list[Tensor]]:
    """Maximise the marginal likelihood from all starts; return the best result and its parameters."""
    if init == "median":
        start_at_medians(model)
    else:
        median_distances(model)  # checks the distances and fills their caches
    start = _values(model)
    generator = torch.Generator().manual_seed(seed)
    best: tuple[Minimum, list[Tensor]] | None = None
    for restart in range(restarts + 1):
        _set_values(model, start)
        if restart == 1:
            make_smooth(model)
        elif restart:
            scatter(model, generator)
        try:
            result = _maximise(mll, options)
        except (NanError, NotPSDError) as error:  # a line search went too far
            failure = error
            continue
        if best is None or result.loss < best[0].loss:
            best = result, _values(model)
    if best is None:
        _set_values(model, start)
        raise failure
    return best


def _check_shapes(model: ExactGP) -> None:
    """Check that the models of a batch share no parameter, since BoTorch fits each one separately."""
    shape = getattr(model, "_aug_batch_shape", torch.Size())
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and shape.numel() > 1 and parameter.shape[: len(shape)] != shape:
            raise ValueError(
                f"Expected a {name} for each model in a batch of shape {tuple(shape)}, got one of "
                f"shape {tuple(parameter.shape)}. Make kernels with batch_shape={shape}, or use "
                "SharedKernelGP for outputs that share one kernel."
            )


def _maximise(mll: ExactMarginalLogLikelihood, options: dict[str, Any] | None) -> Minimum:
    model = mll.model
    if getattr(model, "_aug_batch_shape", torch.Size()).numel() > 1:  # one fit for each output
        result = fit_gpytorch_mll_scipy(mll, options=options)
        converged = result.status == OptimizationStatus.SUCCESS
        return Minimum(float(result.fval), converged, result.message or result.status.name)
    parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
    closure = ForwardBackwardClosure(
        lambda: -mll(model(*model.train_inputs), model.train_targets), parameters
    )
    return minimise(closure, parameters, bounds, options=options)


def _values(model: ExactGP) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def _set_values(model: ExactGP, values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)
