"""Priors for models with few evaluations."""

from __future__ import annotations

import math

import torch
from botorch.models.kernels.categorical import CategoricalKernel
from gpytorch.kernels import Kernel, MaternKernel
from gpytorch.priors import LogNormalPrior

from gp_distributions.fitting.starts import start_at_medians
from gp_distributions.models import DistributionGP


def median_lengthscale_prior(
    model: DistributionGP, *, factor: float = 1.0, scale: float = 0.5
) -> DistributionGP:
    r"""Give the lengthscales of a model log-normal priors around the median distance, in place.

    With :math:`\bar d` the median distance between training clouds,

    .. math::
        \log \ell \sim N(\log(\text{factor} \cdot \bar d),\; \text{scale}^2).

    With few evaluations, the likelihood is often largest for a lengthscale so short that the model
    learns nothing from one cloud about another, and a search then stays close to the best cloud. With
    many evaluations the prior hardly matters.

    Args:
        model: The model. Its lengthscales are set to the median distance. A kernel is not changed
            if it already has a prior, if its lengthscale requires no gradient, or if all its training
            clouds coincide. If several outputs share a kernel, its prior counts once per output, as the
            prior of the noise does.
        factor: Median of the prior, in units of the median distance.
        scale: Standard deviation of the log lengthscale.

    Returns:
        The model, not fitted, in training mode.

    Raises:
        ValueError: If ``factor`` or ``scale`` is not positive.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel
        >>> from gp_distributions.bayesopt import median_lengthscale_prior
        >>> X = PointClouds(torch.arange(10, dtype=torch.float64).reshape(5, 2, 1))
        >>> model = DistributionGP(X, X.points.mean(-2), SlicedWassersteinKernel(1))
        >>> kernel = median_lengthscale_prior(model).covar_module.base_kernel
        >>> round(kernel.lengthscale.item(), 3), round(kernel.lengthscale_prior.loc.exp().item(), 3)
        (4.0, 4.0)

    Source: Hvarfner, Hellsten and Nardi 2024, for lengthscales of vectors.
    """
    if not (factor > 0 and scale > 0):
        raise ValueError(f"Expected factor > 0 and scale > 0, got {factor} and {scale}.")
    model.train()
    for kernel, median in start_at_medians(model).items():
        if hasattr(kernel, "lengthscale_prior") or not kernel.raw_lengthscale.requires_grad:
            continue
        location, deviation = torch.tensor(
            [math.log(factor * median.item()), scale], dtype=torch.float64
        )
        _give(kernel, LogNormalPrior(location, deviation))
    return model


def covariate_lengthscale_priors(kernel: Kernel) -> Kernel:
    r"""Give the lengthscales of numbers and categories log-normal priors, in place.

    With :math:`k` numbers that are scaled to [0, 1], their priors are
    :math:`\log \ell \sim N(\sqrt 2 + \tfrac12 \log k,\; 3)`; those of categories are
    :math:`\log \ell \sim N(0, 1)`.

    Args:
        kernel: A :func:`mixed_kernel` of numbers that are scaled to [0, 1]. The lengthscales of numbers
            are set to the modes of their priors.

    Returns:
        The kernel.

    Example:
        >>> from gp_distributions import MixedSearch, mixed_kernel
        >>> from gp_distributions.bayesopt.priors import covariate_lengthscale_priors
        >>> search = MixedSearch(angle=(0.0, 10.0))  # its encoding scales angles to [0, 1]
        >>> kernel = covariate_lengthscale_priors(mixed_kernel(search.encoding))
        >>> round(kernel.base_kernel.base_kernel.lengthscale.item(), 3)
        0.205

    Source: Hvarfner, Hellsten and Nardi 2024.
    """
    numeric = [part for part in kernel.modules() if isinstance(part, MaternKernel)]
    count = sum(part.ard_num_dims or 1 for part in numeric)
    for part in numeric:
        prior = LogNormalPrior(math.sqrt(2) + math.log(count) / 2, math.sqrt(3))
        part.lengthscale = prior.mode
        _give(part, prior)
    for part in kernel.modules():
        if isinstance(part, CategoricalKernel):
            _give(part, LogNormalPrior(0.0, 1.0))
    return kernel


def _give(kernel: Kernel, prior: LogNormalPrior) -> None:
    # The closures are methods of the kernel, because local functions could not be pickled.
    kernel.register_prior(
        "lengthscale_prior", prior, kernel._lengthscale_param, kernel._lengthscale_closure
    )
