"""Fitting of variational models: a start from link values, then the bound over all parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import LogNormalPrior
from linear_operator.operators import CholLinearOperator, TriangularLinearOperator
from torch import Tensor
from torch.nn import Parameter

from gp_distributions.fitting.ascent import (
    Ascent,
    ascending,
    climb,
    objective,
    set_values,
    values_of,
    warn_unless_converged,
)
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.members import chosen
from gp_distributions.fitting.stages import SAMPLE, check_init, run, warn_of_units
from gp_distributions.fitting.starts import start_at, start_at_medians
from gp_distributions.hosts import VariationalDistribution
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.variational_gp import VariationalDistributionGP
from gp_distributions.numerics.linear_algebra import cholesky

# At a start, the outputscale is at least this share of the variance of link values. The second number is
# the least variance of the effects of clouds, and that of link values in variances of their errors.
_LEAST, _EFFECT = 0.1, 0.01
# A step that improves the bound by less, for each cloud, is the last: the last digits of the variational
# distribution take most of the steps.
_FTOL = 1e-6


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
    hyperparameters together. The distribution is the posterior given latent values with normal errors
    at the training clouds, two numbers for each, which hardly change with the hyperparameters. There are
    two starts: median distances, and the hyperparameters of an exact model of link values, such as the
    logarithms of rates; of counts and shares, the one with the larger bound is kept. With a likelihood
    of GPyTorch, there is only the first. An interrupted fit keeps the best parameters found so far.

    Args:
        model: The model.
        init: As in :func:`fit`; ``"current"`` keeps the kernel as well.
        restarts: As in :func:`fit`, for the exact model.
        seed: As in :func:`fit`, for the exact model.
        options: As in :func:`fit`.
        progress: As in :func:`fit`.

    Returns:
        The fitted model, in evaluation mode.

    Source: Opper and Archambeau 2009 (two numbers for each cloud).
    """
    check_init(init)
    warn_of_units(model)
    options = options or {}
    exact = None
    if init == "median" and hasattr(model.likelihood, "link"):
        exact = _exact(model, restarts=restarts, seed=seed, options=options, progress=progress)
    loose = {"ftol": _FTOL} | options
    with _by_sites(model), ascending(model, "Fitting", loose, progress=progress) as ascent:
        starts = list(_starts(model, exact)) if init == "median" else [ascent.best]
        if model.train_known:  # otherwise the bound at a start tells little of its maximum
            starts = [_likeliest(ascent, starts)]
        best = climb(ascent, starts, seed=seed)
    warn_unless_converged(best)
    return model


def _exact(model: VariationalDistributionGP, **options: Any) -> DistributionGP:
    """Fit an exact model of link values, which shares its kernel and its mean."""
    values, noise = _link(model)
    least = noise.median()  # effects of clouds add to it
    prior = LogNormalPrior(least.log() + 1.0, 1.0)
    likelihood = GaussianLikelihood(
        prior, noise_constraint=GreaterThan(least, initial_value=2 * least)
    )
    parts = {"mean_module": model.mean_module, "outcome_transform": None, "likelihood": likelihood}
    exact = DistributionGP(model.train_rows, values, model.covar_module, **parts)
    exact.chooses_metric = model.chooses_metric
    run(exact, SAMPLE, **options, description="Starting")
    if model.chooses_metric:
        model.choice = chosen(exact)
    return exact


@torch.no_grad()
def _likeliest(ascent: Ascent, starts: Iterable[list[Tensor]]) -> list[Tensor]:
    """Return the start at which the bound is largest."""
    bound = objective(ascent.model)

    def loss(start: list[Tensor]) -> float:
        set_values(ascent.model, start)
        return ascent.loss(bound).item()

    return min(starts, key=loss)


class _Sites(VariationalDistribution):
    r"""The posterior given latent values with normal errors at the training clouds.

    The distribution with the largest bound is one of these if the likelihood is log-concave. It has two
    parameters for each training cloud, which depend little on the hyperparameters.
    """

    def __init__(self, model: VariationalDistributionGP) -> None:
        super().__init__(len(model.variational_strategy.inducing_points))
        self.posterior = partial(_posterior, model)
        self.values, self.noise = _link(model)
        zeros = torch.zeros_like(model.train_targets)
        self.errors, self.log_ratios = Parameter(zeros), Parameter(zeros.clone())

    def forward(self) -> MultivariateNormal:
        """Return the distribution of whitened inducing values."""
        values = self.values + self.noise.sqrt() * self.errors
        return self.posterior(values, self.noise * self.log_ratios.exp())

    def initialize_variational_distribution(self, prior_dist: MultivariateNormal) -> None:
        """Keep the posterior given link values."""


@contextmanager
def _by_sites(model: VariationalDistributionGP) -> Iterator[None]:
    """Give the variational distribution the parameters of sites within a ``with`` block."""
    strategy = model.variational_strategy
    whole, sites = strategy._variational_distribution, _Sites(model)
    strategy._variational_distribution = sites
    try:
        yield
    finally:
        model.train()
        with torch.no_grad():
            strategy._clear_cache()
            found = sites()
            posterior = MultivariateNormal(found.mean, found.covariance_matrix)
            whole.initialize_variational_distribution(posterior)
            strategy._clear_cache()
        strategy._variational_distribution = whole
        model.eval()


def _link(model: VariationalDistributionGP) -> tuple[Tensor, Tensor]:
    """Return latent values that would explain targets, and the variances of their errors."""
    if hasattr(model.likelihood, "link"):
        values, noise = model.likelihood.link(model.train_targets, *model.train_known.values())
        return values.detach(), noise.detach()
    zeros = torch.zeros_like(model.train_targets)
    return zeros, zeros + 1.0


def _posterior(
    model: VariationalDistributionGP, values: Tensor, noise: Tensor
) -> MultivariateNormal:
    """Return the posterior of whitened inducing values given latent values with noise."""
    projected, _ = model.variational_strategy.projected(model.train_rows)
    precise = projected / noise
    identity = torch.eye(len(projected)).to(projected)
    factor = cholesky(identity + precise @ projected.mT)
    root = torch.linalg.solve_triangular(factor.mT, identity, upper=True)
    errors = values - model.mean_module(model.train_rows)
    covariance = CholLinearOperator(TriangularLinearOperator(root, upper=True))  # root @ root.mT
    return MultivariateNormal(root @ (root.mT @ (precise @ errors)), covariance)


def _starts(
    model: VariationalDistributionGP, exact: DistributionGP | None
) -> Iterator[list[Tensor]]:
    """Yield the values of all parameters at each start."""
    if exact is not None:
        values, noise = _link(model)
        variance = values.var(correction=min(1, len(values) - 1))  # zero if all targets are alike
        variance = variance.clamp_min(_EFFECT * noise.median())
        kernels = [each for each in model.covar_module.modules() if isinstance(each, ScaleKernel)]
        for kernel in kernels:
            start_at(kernel, "outputscale", kernel.outputscale.clamp_min(_LEAST * variance))
        if model.raw_effect_variance is not None:
            effect = (exact.likelihood.noise - noise.median()).clamp_min(_EFFECT)[0]
            start_at(model, "effect_variance", effect)
        yield values_of(model)
        for kernel in kernels:
            start_at(kernel, "outputscale", variance)
        if isinstance(model.mean_module, ConstantMean):
            start_at(model.mean_module, "constant", values.mean())
    start_at_medians(model)
    yield values_of(model)
