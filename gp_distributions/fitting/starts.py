"""Initial values of the hyperparameters that a fit learns; they satisfy the constraints."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from botorch.models.model import Model as BoTorchModel
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.comparison import rounding_of
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, rows_of
from gp_distributions.kernels.covariances import BlockKernel, covariance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.priors import LogarithmPrior
from gp_distributions.kernels.reading import inside_blocks
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.models.exact_inference import ExactMultivariateNormal
from gp_distributions.numerics.sampling import median_apart
from gp_distributions.warnings import UndeterminedWarning, warn

# The smooth start multiplies lengthscales by this factor; most profiles are then nearly linear.
_SMOOTH = 10.0
# Random starts multiply or divide lengthscales and noise by up to this factor.
_SPREAD = 5.0
# Minimum distance of initial values from a bound: a share of the interval between two finite bounds
# (_WITHIN), or of a single finite bound (_BEYOND).
_WITHIN, _BEYOND = 1e-3, 0.1


def training_rows(model: ExactGP) -> Tensor:
    """Return the training inputs of a model after its input transform."""
    (rows,) = model.train_inputs
    original = isinstance(model, BoTorchModel) and not model._has_transformed_inputs
    return model.transform_inputs(rows) if original else rows


def compared_rows(model: ExactGP) -> EmbeddedRows:
    """Return the training rows on which the kernel is evaluated, with what was computed from them."""
    if isinstance(model, DistributionGP):
        return model.compared_rows
    return EmbeddedRows(training_rows(model))


def noise_of(model: ExactGP, rows: Rows) -> Tensor:
    """Return the noise variances of the training targets.

    Args:
        model: A model.
        rows: The training rows as the kernel sees them, of which noise may depend on the sizes of bags.
    """
    zeros = torch.zeros_like(model.train_targets)
    nothing = ExactMultivariateNormal(zeros, DiagLinearOperator(zeros))
    nothing.rows = rows
    return model.likelihood(nothing).lazy_covariance_matrix.diagonal()


def median_distances(model: ExactGP) -> dict[DistributionKernel, Tensor]:
    """Compute the median distance between the training clouds for each distribution kernel.

    Args:
        model: A model.

    Returns:
        The median distance between clouds that do not coincide, for each kernel under which not all
        of them do.

    Warns:
        UndeterminedWarning: If all of several training clouds coincide for a distance.
    """
    medians: dict[Distance, Tensor] = {}
    training = compared_rows(model)
    size = training.rows.shape[-2]

    def record(distance: Distance, inputs: tuple[Rows, ...], squared: Tensor) -> None:
        rows = rows_of(inputs[0])
        # An interrupt may leave the hook, which then sees predictions, too.
        whole = squared.shape[-2:] == (size, size)
        if distance not in medians and whole and size > 1:
            rounding = rounding_of(distance, rows, squared)
            median = median_apart(squared, rounding=rounding).sqrt()
            if bool(median.isnan()):
                warn(
                    f"All {size} training clouds coincide for {distance}: predictions do not depend on "
                    "the clouds, which do not determine the lengthscale. Check the inputs, or use "
                    "another distance.",
                    UndeterminedWarning,
                )
            else:
                medians[distance] = median

    kernels = [k for k in model.covar_module.modules() if isinstance(k, DistributionKernel)]
    with ExitStack() as hooks, torch.no_grad():
        for kernel in kernels:
            hooks.enter_context(kernel.distance.register_forward_hook(record))
        covariance(model.covar_module, training)
    return {kernel: medians[kernel.distance] for kernel in kernels if kernel.distance in medians}


def start_at_medians(model: ExactGP) -> dict[DistributionKernel, Tensor]:
    """Set the lengthscale of every distribution kernel to its median distance.

    Several lengthscales of a kernel are set to the mode of their prior. A linear term varies half as
    much among clouds as the other.

    Args:
        model: A model.

    Returns:
        The median distance for each kernel.
    """
    medians = median_distances(model)
    for kernel in model.covar_module.modules():
        if isinstance(kernel, DistributionKernel):
            kernel.start_at_prior()
    for kernel, median in medians.items():
        set_priors(kernel, median)
        start_at(kernel, "lengthscale", median)
        if kernel.linear:
            start_at(kernel, "linear_variance", 1 / median.square())
    return medians


def set_priors(kernel: DistributionKernel, median: Tensor) -> None:
    """Tell the priors of a kernel that are relative to it the median distance between clouds."""
    for _, _, prior, *_ in kernel.named_priors():
        if isinstance(prior, LogarithmPrior):
            prior.set_distance(median)


def _change(model: ExactGP, change: Callable[[Tensor], Tensor]) -> None:
    """Change the noise, and lengthscales of distribution kernels and within kernels of blocks."""
    inside = inside_blocks(model.covar_module)
    for part in model.covar_module.modules():
        scaled = isinstance(part, Kernel) and part.has_lengthscale
        if isinstance(part, DistributionKernel) or (scaled and part in inside):
            start_at(part, "lengthscale", change(part.lengthscale))
    _start_noise(model, change)


def make_smooth(model: ExactGP, factor: float = _SMOOTH) -> None:
    """Multiply lengthscales, outputscales and noise so that the prior has smoother functions.

    The functions still vary about as much between clouds at the median distance. A factor below one
    makes them rougher.
    """
    _change(model, lambda value: factor * value)
    for kernel in model.covar_module.modules():
        # Values of other scaled kernels do not depend on these lengthscales.
        if isinstance(kernel, ScaleKernel) and (
            isinstance(kernel.base_kernel, DistributionKernel)
            or any(isinstance(part, BlockKernel) for part in kernel.base_kernel.modules())
        ):
            start_at(kernel, "outputscale", factor**2 * kernel.outputscale)
            for part in kernel.modules():
                if isinstance(part, DistributionKernel) and part.linear:
                    start_at(part, "linear_variance", part.linear_variance / factor**2)


def scatter(model: ExactGP, generator: torch.Generator) -> None:
    """Multiply lengthscales and noise by random factors between 1/5 and 5."""

    def scaled(value: Tensor) -> Tensor:
        powers = 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1
        return value * (powers * math.log(_SPREAD)).exp().to(value)

    _change(model, scaled)


def give_signal(model: ExactGP) -> None:
    """Set the outputscale to the variance of the targets, and the noise to a tenth of it."""
    variance = model.train_targets.var()
    start_at_medians(model)
    _start_noise(model, lambda _: 0.1 * variance)
    for kernel in model.covar_module.modules():
        if isinstance(kernel, ScaleKernel):
            start_at(kernel, "outputscale", variance)


def _start_noise(model: ExactGP, change: Callable[[Tensor], Tensor]) -> None:
    """Change the noise of a model, if it has noise that is learned."""
    if isinstance(model.likelihood, GaussianLikelihood):
        start_at(model.likelihood.noise_covar, "noise", change(model.likelihood.noise))


def start_at(module: Any, name: str, value: Tensor) -> None:
    """Set a hyperparameter to ``value``, or as close as its constraint allows, if it is learned."""
    raw = f"raw_{name}"
    if not getattr(module, raw).requires_grad:
        return
    value = value.detach()
    constraint = module.constraint_for_parameter_name(raw)
    if constraint is not None:
        lower, upper = constraint.lower_bound.to(value), constraint.upper_bound.to(value)
        width = upper - lower
        finite = torch.minimum(lower.abs(), upper.abs())  # the finite bound, if there is only one
        # The raw parameter of a value on a bound would be infinite.
        margin = torch.where(width.isinf(), _BEYOND * finite, _WITHIN * width)
        value = value.clamp(lower + margin, upper - margin)
    setattr(module, name, value)
