"""Whether the data determine the hyperparameters on which intervals depend."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gpytorch.models import ExactGP
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.fitting.integration import can_be_integrated, integrated
from gp_distributions.kernels.covariances import covariance
from gp_distributions.models.integrated_gp import IntegratedGP
from gp_distributions.warnings import UndeterminedWarning, warn

# Models of more clouds, or of more than two hyperparameters of the kernel, are not examined: the
# integration of few hyperparameters takes a small part of the time of a fit.
_CLOUDS, _HYPERPARAMETERS = 100, 2
# So few clouds, as at the start of a search, determine hardly anything, which needs no warning.
_FEWEST = 10
# Fits warn if intervals should be wider by this factor. It is strict: most intervals from few clouds
# should be somewhat wider (width_of_fit in benchmarks/few_clouds.py), which needs no warning each time.
_BOUND = 2.0
# Probabilities between which the values of a hyperparameter are reported.
_LOW, _HIGH = 0.025, 0.975


class Determination(NamedTuple):
    """How intervals of a fitted model depend on hyperparameters that the data do not determine.

    Attributes:
        widening: Factor by which intervals should be wider for all hyperparameters that are likely,
            not only the likeliest: the geometric mean over training clouds, each left out.
        name: Name of the hyperparameter on which the width of intervals depends most.
        low: A value above which it lies with probability 97.5%.
        high: A value below which it lies with probability 97.5%.
    """

    widening: float
    name: str
    low: float
    high: float


def determination(model: ExactGP) -> Determination | None:
    r"""Compare the intervals of a fitted model with those of the mixture over its hyperparameters.

    Let :math:`A` be the covariance matrix of the noisy targets. A member of the mixture, with posterior
    probability :math:`w_k`, predicts cloud :math:`i` from the others with the squared scale
    :math:`s_{ki}^2 = 1 / [A_k^{-1}]_{ii}`, and the fitted model with :math:`s_i^2`. The widening is

    .. math:: \exp\Bigl(\frac{1}{2T} \sum_i \log \frac{\sum_k w_k s_{ki}^2}{s_i^2}\Bigr).

    Args:
        model: A fitted model. It is in evaluation mode afterwards.

    Returns:
        The result; None for models of fewer than 10 or more than 100 clouds, with more than two
        hyperparameters of the kernel beside the outputscale, with hyperparameters that are fixed,
        bounded from above or extreme, or that cannot be integrated.
    """
    size = model.train_targets.shape[-1]
    if not _FEWEST <= size <= _CLOUDS or not can_be_integrated(model) or _is_restricted(model):
        return None
    found = integrated(model, limit=_HYPERPARAMETERS)
    if found is None:
        return None
    with torch.no_grad():
        weights, squared = found.weights, found.squared_scales_left_out()
        (rows,) = model.train_inputs
        noise = model.likelihood(model.forward(rows)).lazy_covariance_matrix
        own = 1 / torch.linalg.inv(noise.to_dense()).diagonal()
        mixed = (weights.unsqueeze(-1) * squared).sum((0, 1))
        widening = (mixed / own).log().mean().div(2).exp().item()
        unit = covariance(found.covar_module, rows, diag=True).mean(-1, keepdim=True)
        logs = squared.log().mean(-1)
        return Determination(widening, *_most_important(found, weights, logs, unit))


def warn_of_undetermined(model: ExactGP) -> None:
    """Warn if intervals of a fitted model hang on hyperparameters that the data do not determine.

    Warns:
        UndeterminedWarning: If intervals should be at least twice as wide.
    """
    found = determination(model)
    if found is None or not found.widening > _BOUND:
        return
    warn(
        f"{model.train_targets.shape[-1]} clouds do not determine the hyperparameters, and intervals "
        f"are too short: over all likely values they would be {found.widening:.2f} times as wide. They "
        f"depend most on {found.name}, which lies between {found.low:.2g} and {found.high:.2g} with a "
        "probability of 95%. Use integrate_hyperparameters(model) for predictions.",
        UndeterminedWarning,
    )


def _is_restricted(model: ExactGP) -> bool:
    """Whether the noise or hyperparameters of the kernel are known, or known to be small."""
    fixed = {
        parameter
        for module in model.covar_module.modules()
        if isinstance(module, Distance)
        for parameter in module.parameters()
    }
    for module in (model.covar_module, model.likelihood):
        for name, parameter in module.named_parameters():
            if parameter in fixed:
                continue
            constraint = module.constraint_for_parameter_name(name)
            if not parameter.requires_grad or (
                constraint is not None and bool(constraint.upper_bound.isfinite().any())
            ):
                return True
    return False


def _most_important(
    found: IntegratedGP, weights: Tensor, logs: Tensor, unit: Tensor
) -> tuple[str, float, float]:
    """Find the hyperparameter that varies most together with the ``L x J`` logarithms of widths.

    ``unit`` has the variances of the functions if the outputscale is one, ``L x 1`` or one of them.
    """
    mean = (weights * logs).sum()
    best: tuple[float, Any, Any] = (-1.0, None, None)
    candidates = {
        "the ratio of noise to outputscale": (found.ratios / unit).expand_as(weights),
        **{
            f"covar_module.{name.replace('raw_', '')}": values.reshape(-1, 1).expand_as(weights)
            for name, values in found.positive_values().items()
            if values[0].numel() == 1
        },
    }
    for name, values in candidates.items():
        apart = values.log() - (weights * values.log()).sum()
        shared = (weights * apart * (logs - mean)).sum().square()
        share = (shared / (weights * apart.square()).sum().clamp_min(1e-300)).item()
        if share > best[0]:
            best = share, name, values
    _, name, values = best
    order = values.flatten().argsort()
    below = weights.flatten()[order].cumsum(0)
    places = [int((below < level).sum()) for level in (_LOW, _HIGH)]
    low, high = (values.flatten()[order][min(place, len(order) - 1)].item() for place in places)
    return name, low, high
