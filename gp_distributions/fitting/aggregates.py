"""Fitting of rates of atoms: the marginal likelihood of counts and shares of regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from botorch.optim.utils.model_utils import get_parameters_and_bounds
from torch import Tensor

from gp_distributions.fitting.ascent import Maximum, ascending, values_of, warn_unless_converged
from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.stages import check_init
from gp_distributions.models.variational_aggregate_gp import VariationalAggregateGP

# A step that improves the marginal likelihood by less, for each region, is the last.
_FTOL = 1e-6
# The mode is found in at most so many rounds of so many steps, to this precision.
_ROUNDS, _STEPS, _PRECISE = 10, 50, 1e-11


@fit.register
@torch.inference_mode(False)
@torch.enable_grad()
def fit_aggregates(
    model: VariationalAggregateGP,
    *,
    init: Literal["median", "current"] = "median",
    restarts: int = 0,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: bool = True,
) -> VariationalAggregateGP:
    """Fit rates of atoms in place; :func:`fit` calls this function.

    L-BFGS maximises Laplace's approximation of the marginal likelihood, plus the log densities of the
    priors, over the hyperparameters from their current values. An interrupted fit keeps the best found
    so far.

    Args:
        model: The model.
        init: Both values are the same.
        restarts: Not used, as is ``seed``.
        seed: Not used.
        options: As in :func:`fit`.
        progress: As in :func:`fit`.

    Returns:
        The fitted model, in evaluation mode.
    """
    check_init(init)
    with ascending(model, "Fitting", options, progress=progress) as ascent:
        parameters, bounds = get_parameters_and_bounds(model, requires_grad=True)

        def loss() -> Tensor:
            ascent.tick()
            settle(model, 0)
            evidence = log_evidence(model)
            for _, module, prior, closure, _ in model.named_priors():
                evidence = evidence + prior.log_prob(closure(module)).sum()
            found = -evidence / len(model.train_targets)
            ascent.see(found.item())
            return found

        minimum = minimise(loss, parameters, bounds, **{"ftol": _FTOL} | (options or {}))
        model.place.copy_(model.place[:1].expand_as(model.place))
        for member in range(len(model.place)):
            settle(model, member)
    warn_unless_converged(Maximum(minimum, values_of(model)))
    return model


def settle(model: VariationalAggregateGP, member: int) -> None:
    """Move coefficients and deviations to the most likely ones, for one draw of slopes."""
    table, slopes = model.table().detach(), model.slopes[member]
    place = model.place[member]
    for _ in range(_ROUNDS):
        with torch.no_grad():
            curvature, start = model.curvature(table, place, slopes), place.clone()
        away = torch.zeros_like(start).requires_grad_()

        def loss() -> Tensor:
            return -model.density(table, start + curvature.spread(away), slopes)  # noqa: B023

        found = minimise(loss, {"away": away}, ftol=_PRECISE, maxiter=_STEPS)
        with torch.no_grad():
            place.copy_(start + curvature.spread(away))
        if found.converged:
            return


def log_evidence(model: VariationalAggregateGP) -> Tensor:
    r"""Compute Laplace's approximation of the log marginal likelihood at :math:`b = 0`, with gradients.

    At the mode :math:`z` of the density :math:`\psi`, with the precision :math:`P`, it is
    :math:`\psi - \log |P| / 2`. The mode moves with the hyperparameters :math:`h` by
    :math:`-(\partial^2 \psi / \partial z^2)^{-1} \partial^2 \psi / \partial z \partial h`, which changes
    the determinant.
    """
    table, mode, slopes = model.table(), model.place[0], model.slopes[0]
    with torch.no_grad():
        curvature = model.curvature(table, mode, slopes)
    away = torch.zeros_like(mode).requires_grad_()
    place = mode + curvature.spread(away)
    density = model.density(table, place, slopes)
    volume = -model.curvature(table, place, slopes).log_root
    (slope,) = torch.autograd.grad(density, away, create_graph=True)
    (pull,) = torch.autograd.grad(volume, away, retain_graph=True)
    moved = _solved(
        lambda step: -torch.autograd.grad(slope, away, step, retain_graph=True)[0], pull
    )
    prior = model.spread_prior.log_prob(model.spread(table))
    return density + volume + moved @ slope + prior


def _solved(product: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """Solve equations of a positive definite matrix close to one, by conjugate gradients."""
    found, left, step, size = torch.zeros_like(right), right, right, right @ right
    end = _PRECISE * size
    for _ in range(_STEPS):
        if size <= end:
            break
        image = product(step)
        rate = size / (step @ image)
        found, left = found + rate * step, left - rate * image
        before, size = size, left @ left
        step = left + size / before * step
    return found
