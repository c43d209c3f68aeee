"""Hyperparameters by marginal likelihood, started where the data are."""

from __future__ import annotations

from typing import Any, Literal

import torch
from botorch.models.model import Model as BoTorchModel
from botorch.optim.closures import ForwardBackwardClosure
from botorch.optim.closures.model_closures import get_loss_closure_with_grads
from botorch.optim.core import OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.fitting.lbfgs import Minimum, minimise
from gp_distributions.fitting.sampling_noise import learn_sampling_noise
from gp_distributions.fitting.starts import make_smooth, scatter, start_at_medians
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.numerics.cholesky import jitter_noted
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

    L-BFGS on the log marginal likelihood, priors included, with Cholesky factors at every size.
    Distances without parameters that require a gradient are computed once for the whole fit. Then
    :func:`learn_sampling_noise`, where the likelihood is a :class:`SamplingNoiseLikelihood`.
    Hyperparameters that require no gradient stay as they are, and starts are within constraints.

    Args:
        model: A :class:`DistributionGP`, or any GPyTorch ``ExactGP`` with a ``covar_module`` and a
            ``likelihood``.
        init: ``"median"``: every :class:`DistributionKernel` starts at the median distance of its
            training clouds, whatever their units. ``"current"``: at the present values.
        restarts: Further starts, of which the best is kept. The likelihood often has one maximum
            where every cloud is an island and one where the function is smooth: the first further
            start has lengthscales ten times as long, outputscales a hundred times as large, so that
            the function varies as much between clouds, and ten times the noise; those after it have
            random factors between 1/5 and 5.
        seed: Of the random starts, and of the subsets that sampling noise is learned from.
        options: Options of ``scipy.optimize.minimize`` with L-BFGS-B, for example
            ``{"maxiter": 50}``.

    Returns:
        The model, fitted, in evaluation mode.

    Raises:
        TypeError: If it is no ``ExactGP``.
        ValueError: If ``init`` is neither of the two, ``restarts`` is negative, or models of several
            outputs are to share a parameter, as they do in :class:`SharedKernelGP` only.
        NotPSDError: If the covariance matrix cannot be factorised on the way, from any start.

    Warns:
        ConvergenceWarning: If the best start did not converge.
        JitterWarning: If the covariance matrix at the hyperparameters found is not positive definite.
    """
    if not isinstance(model, ExactGP):
        raise TypeError(
            "Expected a DistributionGP or another ExactGP of GPyTorch, got "
            f"{type(model).__name__}. Make one of data with DistributionGP(X, Y); fit the models of a "
            "list one by one."
        )
    if init not in ("median", "current"):
        raise ValueError(f'Expected init="median" or init="current", got {init!r}.')
    if restarts < 0:
        raise ValueError(f"Expected restarts >= 0, got {restarts}.")
    _check_shapes(model)
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with jitter_noted() as jitter:
        best, best_values = _best(model, mll, init, restarts, seed, options)
    _set_values(model, best_values)
    if jitter:  # where line searches went does not matter
        with torch.no_grad():
            mll(model(*model.train_inputs), model.train_targets)
    if isinstance(model.likelihood, SamplingNoiseLikelihood):
        learn_sampling_noise(model, seed=seed)
    if not best.converged:
        warn(
            f"The fit did not converge ({best.message}); the hyperparameters are "
            'the best found. Try restarts=5, or fit(model, init="current") to go on from here.',
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
    """The best of all starts, and the parameters that it ends at."""
    if init == "median":
        start_at_medians(model)
    start = _values(model)
    generator = torch.Generator().manual_seed(seed)
    best, best_values, failure = None, start, None
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
        if best is None or result.loss < best.loss:
            best, best_values = result, _values(model)
    if best is None:
        assert failure is not None
        _set_values(model, start)
        raise failure
    return best, best_values


def _check_shapes(model: ExactGP) -> None:
    """BoTorch fits the models of a batch one by one."""
    shape = getattr(model, "_aug_batch_shape", torch.Size())
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and shape.numel() > 1 and parameter.shape[: len(shape)] != shape:
            raise ValueError(
                f"Expected a {name} for each of the models of a batch of shape {tuple(shape)}, got "
                f"the shape {tuple(parameter.shape)}. Make kernels with batch_shape={shape}, or take "
                "SharedKernelGP for outputs that share one kernel."
            )


def _maximise(mll: ExactMarginalLogLikelihood, options: dict[str, Any] | None) -> Minimum:
    model = mll.model
    if getattr(model, "_aug_batch_shape", torch.Size()).numel() > 1:  # one fit for each output
        result = fit_gpytorch_mll_scipy(mll, options=options)
        converged = result.status == OptimizationStatus.SUCCESS
        return Minimum(float(result.fval), converged, result.message or result.status.name)
    parameters, bounds = get_parameters_and_bounds(mll, requires_grad=True)
    if isinstance(model, BoTorchModel):
        closure = get_loss_closure_with_grads(mll, parameters)
    else:
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
