"""Models of a random subset of the training clouds, on which hyperparameters are found quickly."""

from __future__ import annotations

import copy

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP

from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.models.shared_kernel import SharedNoise

# Likelihoods whose parameters do not depend on the number of clouds.
_LIKELIHOODS = (GaussianLikelihood, SamplingNoiseLikelihood, SharedNoise)


def has_subsets(model: ExactGP) -> bool:
    """Whether the marginal likelihood of a subset of the clouds has about the same maxima.

    This is so for the regression models of this package with fixed distances and learned noise.
    """
    return (
        isinstance(model, DistributionGP)
        and type(model.likelihood) in _LIKELIHOODS
        and not any(
            parameter.requires_grad
            for kernel, _ in distribution_kernels(model.covar_module)
            for parameter in kernel.distance.parameters()
        )
    )


def on_subset(model: DistributionGP, size: int, *, seed: int) -> DistributionGP:
    """Return a model of some of the training clouds that shares all parameters with ``model``.

    Args:
        model: A model for which :func:`has_subsets` is true.
        size: Number of clouds, which are drawn at random.
        seed: Random seed.

    Returns:
        A model in the mode of ``model``, whose targets are in the same units.
    """
    (rows,) = model.train_inputs
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(rows.shape[-2], generator=generator)[:size].sort().values.to(rows.device)
    # Outputs share their rows, which are expanded, so only those of the first are copied.
    shared = rows.narrow(-3, 0, 1) if rows.dim() > 2 and rows.stride(-3) == 0 else rows
    chosen = shared.index_select(-2, drawn).expand(*rows.shape[:-2], size, rows.shape[-1])
    smaller = copy.copy(model)  # shares modules, and has its own training data
    smaller.set_train_data(chosen, model.train_targets[..., drawn], strict=False)
    return smaller
