"""The single model that weighs most in a mixture, to look inside."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ConstantMean

from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.integrated_gp import IntegratedGP
from gp_distributions.models.mixture import MixtureModel
from gp_distributions.models.sampling_noise import multiply_noise


def likeliest(model: Any) -> Any:
    """Return the member of largest weight of a mixture, or a model that is no mixture as it is.

    A member of an :class:`IntegratedGP` becomes a :class:`DistributionGP` that shares the training data
    and has the hyperparameters of that member, with its estimated mean and outputscale. Its noise
    variance is the nearest that its constraint allows. Mixtures may contain mixtures.

    Args:
        model: A :class:`MixtureModel`, an :class:`IntegratedGP` or any other model.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, integrate_hyperparameters
        >>> from gp_distributions.models.likeliest import likeliest
        >>> points = torch.randn(9, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> single = DistributionGP(PointClouds(points), points.mean((-2, -1)))
        >>> type(likeliest(integrate_hyperparameters(single))).__name__
        'DistributionGP'
    """
    if isinstance(model, MixtureModel):
        return likeliest(model.models[int(model.weights.argmax())])
    return _single(model) if isinstance(model, IntegratedGP) else model


def _single(model: IntegratedGP) -> DistributionGP:
    place = int(model.weights.argmax())
    values, scale, ratio, mean = model.member(place)
    found = model.model.with_kernel(copy.deepcopy(model.model.covar_module))
    with torch.no_grad():
        for name, value in values.items():
            found.covar_module.get_parameter(name).copy_(value)
        kernel = found.covar_module
        if not isinstance(kernel, ScaleKernel):
            kernel = ScaleKernel(kernel).to(scale)
            kernel.outputscale = 1.0
        kernel.outputscale = kernel.outputscale * scale
        found.covar_module = kernel
        if isinstance(found.mean_module, ConstantMean):
            found.mean_module.constant = mean
        likelihood = found.likelihood
        if not found.noise_is_known:
            least = likelihood.noise_covar.raw_noise_constraint.lower_bound
            multiply_noise(
                likelihood, (ratio * scale).clamp_min(least * (1 + 1e-6)) / likelihood.noise
            )
    return found.eval()
