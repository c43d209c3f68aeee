"""Checks and default values of the constructor arguments of models."""

from __future__ import annotations

import copy
import math
from typing import Any, TypeAlias

import torch
from botorch.models.transforms.input import (
    ChainedInputTransform,
    InputTransform,
    ReversibleInputTransform,
)
from botorch.models.transforms.outcome import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
)
from torch import Tensor

from gp_distributions.hosts import GaussianBase
from gp_distributions.kernels.copies import with_outputscale
from gp_distributions.kernels.default import default_kernel, unit_findings
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.kernels.mixed import mixed_kernel
from gp_distributions.kernels.priors import LogarithmPrior
from gp_distributions.kernels.reading import check_kind, distribution_kernels, readers
from gp_distributions.measures import GaussianMixtures, Gaussians, MixedInputs, PointClouds
from gp_distributions.measures.arrays import described
from gp_distributions.measures.inputs import Inputs, distributions_of
from gp_distributions.models.draw_noise import AddedNoiseLikelihood
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood
from gp_distributions.rows.clouds import same_tensor
from gp_distributions.rows.layout import Columns

_NO_BATCH = torch.Size()

#: Location and scale of the prior of the logarithm of the noise variance of standardised targets.
NOISE = -3.0, 2.0
# Sizes that differ by less than this share are equal, up to rounding.
_ALIKE = 1e-9
# Whether noise depends on the sizes of bags, or the block of mixed inputs that holds the bags.
SamplingNoise: TypeAlias = bool | str | None


def kernel_for(
    X: Inputs | Tensor,
    covar_module: Kernel | None,
    input_transform: InputTransform | None,
    batch_shape: torch.Size = _NO_BATCH,
    *,
    shared: bool = False,
) -> Kernel:
    """Return the kernel of a model, or the default one, with an outputscale.

    Args:
        X: The training inputs.
        covar_module: The kernel, or None for the default one.
        input_transform: The transform of the inputs, or None.
        batch_shape: Batch shape of the default kernel.
        shared: Whether all outputs share the kernel, which then has no batch axis.

    Raises:
        TypeError: If it is no kernel, or the transform is none of BoTorch.
        ValueError: If there is no default kernel; the kernel reads other distributions, or has a batch
            axis although outputs share it; or the transform changes weights.
    """
    if covar_module is None:
        if isinstance(X, GaussianMixtures | Tensor):
            raise ValueError(
                "covar_module is needed unless train_X are PointClouds or Gaussians. Pass for example "
                "SlicedWassersteinKernel(dim) for rows of clouds, or "
                'MMDKernel(dim, inputs="mixtures").'
            )
        shape = _NO_BATCH if shared else batch_shape
        if isinstance(X, MixedInputs):
            covar_module = mixed_kernel(X, batch_shape=shape)
        else:
            covar_module = default_kernel(X, shape)
    if not isinstance(covar_module, Kernel):
        raise TypeError(
            f"Expected a GPyTorch kernel as covar_module, got {described(covar_module)}. "
            "Pass for example SlicedWassersteinKernel(dim), or DistributionKernel(distance); and known "
            "variances of targets as train_Yvar=."
        )
    if shared and covar_module.batch_shape:
        raise ValueError(
            "Expected one kernel for all outputs, got a batch of shape "
            f"{tuple(covar_module.batch_shape)}. Use DistributionGP for a kernel for each output."
        )
    if not isinstance(input_transform, InputTransform | None):
        raise TypeError(
            "Expected an InputTransform of BoTorch or None as input_transform, got "
            f"{described(input_transform)}."
        )
    if input_transform is None:
        check_kind(X, covar_module)
    else:
        _check_columns(X, covar_module, input_transform)
    return with_outputscale(covar_module)


def _check_columns(X: Inputs | Tensor, kernel: Kernel, transform: InputTransform) -> None:
    """Check that a transform of single columns leaves distributions as they are.

    Raises:
        ValueError: If it learns from their columns, or changes weights.
    """
    chained = isinstance(transform, ChainedInputTransform)
    parts = [*transform.values()] if chained else [transform]
    if not all(isinstance(part, ReversibleInputTransform) for part in parts):  # such as a decoder
        return
    rows = X if isinstance(X, Tensor) else X.pack()
    moved = copy.deepcopy(transform)(rows)
    learned = any(getattr(part, "learn_coefficients", True) for part in parts)
    for _, block in readers(kernel):
        both = [block.select(each) for each in (rows, moved)]
        if not learned and block.kind == "clouds":  # may scale all atoms alike
            both = [block.split(each)[1] for each in both]
        if not same_tensor(*both):
            raise ValueError(
                f"Expected an input_transform that leaves {block.kind} as they are, got "
                f"{type(parts[-1]).__name__}, which takes each column of their rows for a feature. "
                "ScaledDistance(distance) weighs coordinates; transform designs before a Decoder in a "
                "ChainedInputTransform, and covariates with indices=."
            )


def chooses_metric(X: Inputs | Tensor, covar_module: Kernel | None) -> bool:
    """Whether a fit chooses the metric: that of clouds and Gaussians, without a kernel."""
    kinds = {type(block) for block in distributions_of(X).values()}
    return covar_module is None and bool(kinds) and kinds <= {PointClouds, Gaussians}


def check_likelihood(likelihood: Likelihood, num_train: int) -> None:
    """Check that a likelihood is one of ``num_train`` clouds.

    Raises:
        TypeError: If it is not Gaussian, or one of tasks that correlate.
        ValueError: If the length of a fixed noise differs from ``num_train``, or further noise is to be
            learned beside it.
    """
    if not isinstance(likelihood, GaussianBase):
        raise TypeError(
            f"Expected a Gaussian likelihood of GPyTorch, got {described(likelihood)}. For others, use "
            "VariationalDistributionGP(X, y, likelihood=...)."
        )
    if isinstance(likelihood, MultitaskGaussianLikelihood):
        raise TypeError(
            f"Expected a likelihood of independent outputs, got {type(likelihood).__name__}. Pass "
            "GaussianLikelihood(batch_shape=torch.Size([outputs])), or None."
        )
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        added = isinstance(likelihood, AddedNoiseLikelihood)
        if likelihood.second_noise_covar is not None and not added:
            raise ValueError(
                "Expected a fixed noise without learn_additional_noise, which GPyTorch adds twice to "
                "the noise of predictions. Pass variances that include all noise, or a "
                "GaussianLikelihood to learn one variance."
            )
        length = likelihood.noise.shape[-1]
        if length != num_train:
            raise ValueError(
                f"Expected a fixed noise for each of {num_train} clouds, got {length}."
            )


def check_noise(likelihood: object, train_Yvar: object, sampling_noise: object) -> None:
    """Check that the noise of a model is given in one way.

    Raises:
        ValueError: If ``sampling_noise`` has another type, or more than one of the arguments is given.
    """
    if not isinstance(sampling_noise, bool | str | None):
        raise ValueError(
            "Expected sampling_noise to be True, False, None or the name of a block, got "
            f"{sampling_noise!r}."
        )
    if (likelihood is not None) + (train_Yvar is not None) + bool(sampling_noise) > 1:
        raise ValueError(
            "Expected at most one of likelihood, train_Yvar and sampling_noise, got two of them. To "
            "choose the options of sampling noise, pass a SamplingNoiseLikelihood as likelihood."
        )


def standardize(targets: Tensor) -> Standardize:
    """Make the transform that standardises ``batch_shape x T x outputs`` targets in any unit.

    By default, BoTorch leaves targets with a standard deviation below 1e-8 unscaled. The transform that
    this function returns leaves only those unscaled whose standard deviation is a rounding error.
    """
    largest = targets.abs().amax(-2)
    limits = torch.finfo(targets.dtype)
    rounding = 64 * limits.eps * largest[largest > 0].min().item() if bool(largest.any()) else 0.0
    return Standardize(
        targets.shape[-1],
        batch_shape=targets.shape[:-2],
        min_stdv=max(limits.tiny, rounding),
    )


def gaussian_noise(dtype: torch.dtype, batch_shape: torch.Size = _NO_BATCH) -> dict[str, Any]:
    """Return the keyword arguments of a default Gaussian likelihood: prior, constraint, batch shape.

    The lower bound of the noise variance is that for standardised targets in a precision.
    """
    location, scale = NOISE
    floor = 1e-8 if dtype == torch.float64 else 1e-4
    return {
        "noise_prior": LogarithmPrior(location, scale),
        "noise_constraint": GreaterThan(floor, initial_value=math.exp(location)),
        "batch_shape": batch_shape,
    }


def noise_for(
    covar_module: Kernel,
    X: Inputs | Tensor,
    dtype: torch.dtype,
    sampling_noise: SamplingNoise,
    batch_shape: torch.Size = _NO_BATCH,
) -> GaussianLikelihood:
    """Return the default likelihood, with noise that depends on the sizes of bags if they are samples.

    Args:
        covar_module: The kernel.
        X: The training inputs.
        dtype: Precision of the model.
        sampling_noise: Whether noise depends on the sizes of bags, or the block of mixed inputs on whose
            sizes it depends. None: if one block holds samples that vary in size, and targets are not
            sums over them.
        batch_shape: Batch shape of the noise.

    Raises:
        ValueError: If it is asked, and the kernel does not read exactly one cloud in each row, or there
            is no block of this name.
    """
    noise = gaussian_noise(dtype, batch_shape)
    totals = any(isinstance(p, ExpectedKernel) and p.total for p in covar_module.modules())
    if sampling_noise is False or (sampling_noise is None and totals):
        return GaussianLikelihood(**noise)
    bags = {block for _, block in readers(covar_module) if block.kind == "clouds"}
    if isinstance(X, MixedInputs):
        varying: list[Columns] = [X.encoding.columns[name] for name in bags_of_unlike_sizes(X)]
        if isinstance(sampling_noise, str):
            varying = [_columns_of(X, sampling_noise)]
        if isinstance(sampling_noise, str) or sampling_noise is None:
            bags = {block for block in bags if block.columns in varying}
    elif isinstance(sampling_noise, str):
        raise ValueError(
            f"Expected mixed inputs with sampling_noise={sampling_noise!r}, the name of a block, got "
            f"{described(X)}. Pass True, False or None."
        )
    elif sampling_noise is None and not bags_of_unlike_sizes(X):
        bags = set()
    if len(bags) != 1:
        if sampling_noise is None:
            return GaussianLikelihood(**noise)
        raise ValueError(
            f"Expected a kernel that reads one cloud of samples in each row with sampling_noise="
            f"{sampling_noise!r}, got one that reads {len(bags)}. Name the block of mixed inputs whose "
            'bags are samples, sampling_noise="block".'
        )
    (block,) = bags
    return SamplingNoiseLikelihood(block.dim, active_dims=block.columns, **noise)


def bags_of_unlike_sizes(X: Inputs | Tensor) -> list[str]:
    """Return the names of the blocks of inputs, ``""`` for bags alone, of samples that vary in size."""
    found = []
    for name, block in ({"": X} if isinstance(X, PointClouds) else distributions_of(X)).items():
        if isinstance(block, PointClouds) and not (block.geometric or block.complete):
            sizes = block.weights.detach().square().sum(-1)
            if bool(sizes.max() > sizes.min() * (1 + _ALIKE)):
                found.append(name)
    return found


def _columns_of(X: MixedInputs, name: str) -> Columns:
    if not isinstance(X.blocks.get(name), PointClouds):
        raise ValueError(
            f"Expected sampling_noise to be True, False, None or the name of a block of bags from "
            f"{[*distributions_of(X)]}, got {name!r}."
        )
    columns: Columns = X.encoding.columns[name]
    return columns


@torch.no_grad()
def adapt_kernel(
    covar_module: torch.nn.Module, X: Inputs | Tensor, rows: Tensor
) -> tuple[str, ...]:
    """Adapt each distance of a kernel to the training rows, and return what to say about their units."""
    for kernel, block in distribution_kernels(covar_module):
        kernel.distance.adapt(block.select(rows))
    return unit_findings(covar_module, X, rows)
