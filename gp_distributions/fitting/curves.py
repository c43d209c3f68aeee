"""Fitting of models of curves: the kernel of clouds, then the covariance of outputs."""

from __future__ import annotations

import copy
import math
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.marginal_likelihood import fit
from gp_distributions.fitting.stages import SAMPLE, run
from gp_distributions.fitting.starts import start_at
from gp_distributions.models.curve_gp import CurveGP
from gp_distributions.numerics.kronecker import KroneckerBound
from gp_distributions.numerics.linear_algebra import cholesky

# Errors of the mean, and eigenvalues and eigenvectors of the covariances of clouds.
Parts: TypeAlias = tuple[Tensor, Tensor, Tensor]

# Shares of the noise that each value has for itself, from which the ascent starts.
_SHARES = (0.0, 0.5, 0.95)
# Steps of the ascent, and the gain in nats per value below which it ends.
_STEPS, _GAIN = 100, 1e-3
# Smallest noise variance of a standardised value, and what is added in proportion to missing values: few
# curves then show how little values vary about each other, and the maximum is too sure of it.
_FLOOR, _GAP_FLOOR = 1e-8, 0.1


@fit.register
def fit_curves(model: CurveGP, **options: Any) -> CurveGP:
    r"""Fit a model of curves in place; :func:`fit` calls this function.

    The kernel of clouds, the means and the noise are those of independent outputs. Given these, the
    covariance :math:`C` of outputs and the noise variances :math:`d` of each maximise the marginal
    likelihood, from three shares of :math:`d` in the noise. A learned :math:`C` takes steps of the EM
    algorithm, :math:`C + \frac2T C\, \nabla_C\, C` and :math:`d + \frac2T d^2\, \nabla_d`, at most 100
    from each share; a kernel of positions is learned by L-BFGS.

    If values are missing, all this is done with their conditional means given the known values of the
    same curve, under a normal distribution of curves. From there, :math:`C` and :math:`d` maximise a
    lower bound of the marginal likelihood of the known values, for which missing values of different
    curves are independent given the known ones. In units of the variances of values, :math:`d` is then
    at least a tenth of the share of missing values, times :math:`(M / T)^2` if :math:`T > M`.

    Args:
        model: The model.
        **options: As in :func:`fit`.

    Returns:
        The fitted model, in evaluation mode.

    Source: Dempster, Laird and Rubin 1977; Neal and Hinton 1998 (lower bound).
    """
    gaps = bool(model.missing.any())
    if gaps:
        _complete(model)
    run(model, SAMPLE, **options)
    with torch.no_grad():
        (errors, values, vectors), noise = model.decomposed(), model.likelihood.noise.clone()

    def learn(errors: Tensor, start: Tensor | None = None) -> float:
        parts = errors, values + model.likelihood.noise.detach(), vectors
        if start is not None:
            model.output_noise = start.clamp_min(_FLOOR).expand(model.num_outputs)
        if model.output_covar_module is not None:
            return _learn_kernel(model, parts)
        if start is not None:
            _start_matrix(model, parts)
        found = _ascend(parts, model.output_factor, model.output_noise)
        density, model.output_factor, model.output_noise = found
        return density

    candidates = []
    for share in _SHARES:
        start_at(model.likelihood.noise_covar, "noise", (1 - share) * noise)
        density = learn(errors, share * noise)
        candidates.append((density, copy.deepcopy(model.state_dict())))
    model.load_state_dict(max(candidates, key=itemgetter(0))[1])
    if gaps:
        learn(errors.masked_fill(model.missing, torch.nan))
    return model


@torch.no_grad()
def _complete(model: CurveGP) -> None:
    """Replace missing targets by their conditional means given the known values of the same curve."""
    targets = model.train_targets.mT.masked_fill(model.missing, torch.nan)
    mean, one = targets.nanmean(0), torch.eye(len(targets)).to(targets)
    errors = targets - mean
    start = _root(errors.nan_to_num().mT @ errors.nan_to_num() / len(errors))
    parts = errors, one.diagonal(), one
    _, factor, noise = _ascend(parts, start, torch.zeros_like(mean))
    filled = KroneckerBound.of(*parts, factor @ factor.mT, noise).filled
    model.set_train_data(targets=(mean + filled).mT.contiguous(), strict=False)


def _root(matrix: Tensor) -> Tensor:
    """Return a root of the positive part of a symmetric matrix, its columns by increasing length."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(0).sqrt()


@torch.no_grad()
def _start_matrix(model: CurveGP, parts: Parts) -> None:
    """Start from the covariance of whitened curves; what its rank leaves out is noise."""
    errors, values, vectors = parts
    rotated = vectors.mT @ errors / values.clamp_min(_FLOOR).sqrt().unsqueeze(-1)
    factor = _root(rotated.mT @ rotated / len(errors))
    # The variance of an output that is constant is zero.
    total = factor.square().sum(-1).clamp_min(torch.finfo(factor.dtype).tiny)
    rest = factor[:, : -model.rank].square().sum(-1) / total
    model.output_factor, model.output_noise = factor[:, -model.rank :], model.output_noise + rest


@torch.no_grad()
def _ascend(parts: Parts, factor: Tensor, noise: Tensor) -> tuple[float, Tensor, Tensor]:
    """Take steps of the EM algorithm; return the log density, a factor and the noise of outputs."""
    number, floor, before = parts[0].numel(), _floor(parts), -math.inf
    noise = noise.clamp_min(floor)
    for _ in range(_STEPS):
        bound = KroneckerBound.of(*parts, factor @ factor.mT, noise)
        density, found = bound.log_density.item(), (factor, noise)
        if density - before <= _GAIN * number:
            break
        before = density
        for_matrix, for_noise = bound.gradients
        step = 2 / len(parts[0]) * factor.mT @ for_matrix @ factor
        factor = factor @ cholesky(torch.eye(len(step)).to(step) + step)
        noise = (noise + 2 / len(parts[0]) * noise.square() * for_noise).clamp_min(floor)
    return density, *found


def _floor(parts: Parts) -> float:
    (number, values), gaps = parts[0].shape, parts[0].isnan().double().mean().item()
    return _FLOOR + _GAP_FLOOR * gaps * min(1.0, values / number) ** 2


def _learn_kernel(model: CurveGP, parts: Parts) -> float:
    """Learn a kernel of positions and the noise of outputs; return the log density."""
    logs, floor = model.output_noise.log().clone().requires_grad_(), _floor(parts)
    assert model.output_covar_module is not None
    named = dict(model.output_covar_module.named_parameters())
    learned = {name: value for name, value in named.items() if value.requires_grad}

    def loss() -> Tensor:
        model.output_noise = logs.exp().clamp_min(floor)
        C = model.output_covariance
        with torch.no_grad():
            bound = KroneckerBound.of(*parts, C, model.output_noise)
        slopes = zip((C, model.output_noise), bound.gradients, strict=True)
        slope = torch.stack([(value * gradient).sum() for value, gradient in slopes]).sum()
        return -(bound.log_density + slope - slope.detach()) / parts[0].numel()

    found = minimise(loss, {"noise": logs, **learned}, ftol=_GAIN)
    model.output_noise = model.output_noise.detach()
    return -found.loss
