"""Priors for models of a few evaluations."""

from __future__ import annotations

import math

import torch
from gpytorch.priors import LogNormalPrior

from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.models import DistributionGP


def median_lengthscale_prior(
    model: DistributionGP, *, factor: float = 1.0, scale: float = 0.5
) -> DistributionGP:
    r"""Give the lengthscales of a model log-normal priors about the median distance, in place.

    With :math:`\bar d` the median distance of the training clouds,

    .. math::
        \log \ell \sim N(\log(\text{factor} \cdot \bar d),\; \text{scale}^2).

    Of a few evaluations the likelihood is often largest where every cloud is an island, and a search
    then creeps around the best one. With many evaluations the prior does not matter.

    Args:
        model: The model. Kernels whose lengthscale has a prior or requires no gradient, or that meet
            coinciding clouds only, are left as they are; the other lengthscales start at the median
            distance. Where several outputs share a kernel, its prior counts once for each, as that on
            the noise does.
        factor: The median of the prior, in median distances.
        scale: The standard deviation of the logarithm.

    Returns:
        The model, not fitted, in training mode.

    Raises:
        ValueError: If ``factor`` or ``scale`` is not positive.

    Source: Hvarfner, Hellsten and Nardi 2024, for lengthscales of vectors.
    """
    if not (factor > 0 and scale > 0):
        raise ValueError(f"Expected factor > 0 and scale > 0, got {factor} and {scale}.")
    model.train()
    for kernel, median in start_at_medians(model).items():
        if hasattr(kernel, "lengthscale_prior") or not kernel.raw_lengthscale.requires_grad:
            continue
        location, deviation = torch.tensor([math.log(factor * median), scale], dtype=torch.float64)
        # By the kernel's own methods, as its constructor does: functions could not be saved.
        kernel.register_prior(
            "lengthscale_prior",
            LogNormalPrior(location, deviation),
            kernel._lengthscale_param,
            kernel._lengthscale_closure,
        )
    return model
