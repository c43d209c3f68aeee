"""Fitting of variational models: a start from link values, then the bound over all parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from gp_distributions.fitting.ascent import (
    ascending,
    climb,
    values_of,
    warn_unless_converged,
)
from gp_distributions.fitting.marginal_likelihood import fit, maximise_likelihood, warn_of_units
from gp_distributions.fitting.starts import start_at, start_at_medians
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.variational_gp import VariationalDistributionGP

# At a start, the outputscale is at least this share of the variance of link values, and the variance of
# the effects of clouds at least the second number.
_LEAST, _EFFECT = 0.1, 0.01
# A step that improves the bound by less, for each cloud, is the last: the variational distribution has
# many parameters, of which the last digits take most of the steps.
_FTOL = 1e-7


@fit.register
@torch.inference_mode(False)
@torch.enable_grad()
def fit_variational(
    model: VariationalDistributionGP,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> VariationalDistributionGP:
    """Fit a variational model in place; :func:`fit` calls this function.

    GPyTorch's evidence lower bound is maximised by L-BFGS over the variational distribution and all
    hyperparameters together, from median distances and from the hyperparameters of an exact model of
    link values, such as the logarithms of rates. Each start has the posterior given these values; with
    a likelihood of GPyTorch, there is one start, which has the prior. An interrupted fit keeps the best
    parameters found so far.

    Args:
        model: The model.
        init: As in :func:`fit`; ``"current"`` continues from the variational distribution as well.
        restarts: That of the exact model, as in :func:`fit`; 0 leaves its start out.
        seed: As in :func:`fit`, for the exact model.
        options: As in :func:`fit`.
        progress: As in :func:`fit`.

    Returns:
        The fitted model, in evaluation mode.
    """
    warn_of_units(model)
    options = options or {}
    loose = {"ftol": _FTOL} | options
    with ascending(model, "Fitting", loose, progress=progress) as ascent:
        starts = [ascent.best]
        if init == "median":
            more = {"restarts": restarts, "seed": seed, "options": options, "progress": progress}
            starts = list(_starts(model, more))
        best = climb(ascent, starts, seed=seed)
    warn_unless_converged(best)
    return model


def _starts(model: VariationalDistributionGP, options: dict[str, Any]) -> Iterator[list[Tensor]]:
    """Yield the values of all parameters at each start."""
    start_at_medians(model)
    if not hasattr(model.likelihood, "link"):
        yield values_of(model)
        return
    values, noise = model.likelihood.link(model.train_targets, *model.train_known.values())
    if isinstance(model.mean_module, ConstantMean):
        start_at(model.mean_module, "constant", values.mean())
    _take_posterior(model, values, noise)
    yield values_of(model)
    if not options["restarts"]:
        return
    parts = {"mean_module": model.mean_module, "outcome_transform": None}
    exact = DistributionGP(model.train_rows, values, model.covar_module, **parts)
    maximise_likelihood(exact, **options, description="Starting")
    for kernel in model.covar_module.modules():
        if isinstance(kernel, ScaleKernel):
            start_at(kernel, "outputscale", kernel.outputscale.clamp_min(_LEAST * values.var()))
    if model.raw_effect_variance is not None:
        start_at(
            model,
            "effect_variance",
            (exact.likelihood.noise - noise.median()).clamp_min(_EFFECT)[0],
        )
    _take_posterior(model, values, noise)
    yield values_of(model)


@torch.no_grad()
def _take_posterior(model: VariationalDistributionGP, values: Tensor, noise: Tensor) -> None:
    """Set the variational distribution to the posterior given latent values with noise."""
    strategy = model.train().variational_strategy
    projected, left = strategy.projected(model.train_rows)
    precise = projected / (noise if left is None else noise + left)
    covariance = torch.linalg.inv(torch.eye(len(projected)).to(projected) + precise @ projected.mT)
    errors = values - model.mean_module(model.train_rows)
    posterior = MultivariateNormal(covariance @ precise @ errors, (covariance + covariance.mT) / 2)
    strategy._variational_distribution.initialize_variational_distribution(posterior)
