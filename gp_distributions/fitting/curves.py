"""Fitting of models of curves: the kernel of clouds, then the covariance of outputs."""

from __future__ import annotations

import copy
import math
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gp_distributions.fitting.lbfgs import minimise
from gp_distributions.fitting.marginal_likelihood import fit, maximise_likelihood
from gp_distributions.fitting.starts import start_at
from gp_distributions.models.curve_gp import CurveGP
from gp_distributions.numerics.kronecker import KroneckerSystem
from gp_distributions.numerics.linear_algebra import cholesky

# Errors of the mean, and eigenvalues and eigenvectors of the covariances of clouds.
Parts: TypeAlias = tuple[Tensor, Tensor, Tensor]

# Shares of the noise that each value has for itself, from which the ascent starts.
_SHARES = (0.0, 0.5, 0.95)
# Steps of the ascent, the gain in nats per value below which it ends, and steps if values are missing,
# which cost hundreds of times as much.
_STEPS, _GAIN, _FEW_STEPS = 100, 1e-3, 10
# Smallest noise variance of a standardised value.
_FLOOR = 1e-8


@fit.register
def fit_curves(model: CurveGP, **options: Any) -> CurveGP:
    r"""Fit a model of curves in place; :func:`fit` calls this function.

    The kernel of clouds, the means and the noise are those of independent outputs. Given these, the
    covariance :math:`C` of outputs and the noise variances :math:`d` of each maximise the marginal
    likelihood of the known values, from three shares of :math:`d` in the noise. A learned :math:`C`
    takes steps of the EM algorithm, :math:`C + \frac2T C\, \nabla_C\, C` and
    :math:`d + \frac2T d^2\, \nabla_d`, at most 100 from each share, or 10 if values are missing, where
    they are slow and the maximum may not be reached; a kernel of positions is learned by L-BFGS.

    Args:
        model: The model.
        **options: As in :func:`fit`.

    Returns:
        The fitted model, in evaluation mode.

    Source: Dempster, Laird and Rubin 1977.
    """
    maximise_likelihood(model, **options)
    with torch.no_grad():
        parts, noise = model.decomposed(), model.likelihood.noise.clone()
    candidates = []
    for share in _SHARES:
        start_at(model.likelihood.noise_covar, "noise", (1 - share) * noise)
        errors, values, vectors = parts
        shared = values + model.likelihood.noise.detach()
        learn = _learn_matrix if model.output_covar_module is None else _learn_kernel
        density = learn(model, (errors, shared, vectors), (share * noise).clamp_min(_FLOOR))
        candidates.append((density, copy.deepcopy(model.state_dict())))
    model.load_state_dict(max(candidates, key=itemgetter(0))[1])
    return model


@torch.no_grad()
def _learn_matrix(model: CurveGP, parts: Parts, noise: Tensor) -> float:
    """Learn a matrix of covariances and the noise of outputs; return the log density."""
    errors, values, vectors = parts
    rotated = vectors.mT @ errors.nan_to_num() / values.clamp_min(_FLOOR).sqrt().unsqueeze(-1)
    largest, directions = torch.linalg.eigh(rotated.mT @ rotated / len(errors))
    factor = directions * largest.clamp_min(0).sqrt()
    rest = factor[:, : -model.rank].square().sum(-1) / factor.square().sum(-1)
    factor, noise = factor[:, -model.rank :], noise + rest
    before = -math.inf
    for _ in range(_FEW_STEPS if bool(model.missing.any()) else _STEPS):
        system = KroneckerSystem.of(errors, values, vectors, factor @ factor.mT, noise)
        density = system.log_density.item()
        model.output_factor, model.output_noise = factor, noise
        if density - before <= _GAIN * errors.numel():
            break
        before = density
        for_matrix, for_noise = system.gradients
        step = 2 / len(errors) * factor.mT @ for_matrix @ factor
        factor = factor @ cholesky(torch.eye(len(step)).to(step) + step)
        noise = (noise + 2 / len(errors) * noise.square() * for_noise).clamp_min(_FLOOR)
    return density


def _learn_kernel(model: CurveGP, parts: Parts, noise: Tensor) -> float:
    """Learn a kernel of positions and the noise of outputs; return the log density."""
    logs = noise.log().expand(model.num_outputs).clone().requires_grad_()
    assert model.output_covar_module is not None
    named = dict(model.output_covar_module.named_parameters())
    learned = {name: value for name, value in named.items() if value.requires_grad}

    def loss() -> Tensor:
        model.output_noise = logs.exp().clamp_min(_FLOOR)
        C = model.output_covariance
        with torch.no_grad():
            system = KroneckerSystem.of(*parts, C, model.output_noise)
        slopes = zip((C, model.output_noise), system.gradients, strict=True)
        slope = torch.stack([(value * gradient).sum() for value, gradient in slopes]).sum()
        return -(system.log_density + slope - slope.detach()) / parts[0].numel()

    found = minimise(loss, {"noise": logs, **learned}, ftol=_GAIN)
    model.output_noise = model.output_noise.detach()
    return -found.loss
