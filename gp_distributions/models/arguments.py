"""What models are given: checks of it, and what they take where it is left out."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from gp_distributions.kernels.named import SlicedWassersteinKernel
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures import GaussianMixtures, Gaussians
from gp_distributions.measures.kinds import Distributions, as_rows


def counted_rows(X: Distributions | Tensor) -> Tensor:
    """Rows along at least one axis.

    Raises:
        TypeError: If ``X`` is neither distributions nor rows.
        ValueError: If it is a single one.
    """
    rows = as_rows(X)
    if rows.dim() < 2:
        raise ValueError(
            "Expected clouds, or rows with an axis that counts them, got a single one, of shape "
            f"{tuple(rows.shape)}. Give clouds[:1] instead of clouds[0], and indices as a column."
        )
    return rows


def check_modules(covar_module: Kernel, likelihood: Likelihood | None, num_train: int) -> None:
    """Raise where the modules of a model cannot be those.

    Raises:
        TypeError: If ``covar_module`` is no kernel.
        ValueError: If a fixed noise is that of another number of clouds.
    """
    if not isinstance(covar_module, Kernel):
        raise TypeError(
            f"Expected a GPyTorch kernel as covar_module, got {type(covar_module).__name__}. "
            "DistributionKernel(distance) is the kernel of a distance."
        )
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        length = likelihood.noise.shape[-1]
        if length != num_train:
            raise ValueError(
                f"Expected a fixed noise for each of {num_train} clouds, got {length} of them."
            )


def default_kernel(
    train_X: Distributions | Tensor, batch_shape: torch.Size | None = None
) -> ScaleKernel:
    """The kernel of models that are given none, with one for each of a batch of models.

    Raises:
        ValueError: If there is none for such inputs.
    """
    if isinstance(train_X, GaussianMixtures):
        raise ValueError(
            "covar_module is needed where train_X are mixtures. Give for example "
            'MMDKernel(dim, inputs="mixtures").'
        )
    if isinstance(train_X, Tensor):
        raise ValueError(
            "covar_module is needed where train_X is a tensor: its columns do not tell the "
            "dimension of the atoms. Give for example SlicedWassersteinKernel(dim), or give "
            "train_X as PointClouds."
        )
    batch_shape = torch.Size() if batch_shape is None else batch_shape
    kernel = SlicedWassersteinKernel(
        train_X.dim,
        inputs="gaussians" if isinstance(train_X, Gaussians) else "clouds",
        profile="matern52",
        batch_shape=batch_shape,
    )
    return ScaleKernel(kernel, batch_shape=batch_shape)


def gaussian_noise(batch_shape: torch.Size, dtype: torch.dtype) -> dict[str, Any]:
    """What Gaussian likelihoods are made of by default."""
    prior = LogNormalPrior(loc=-4.0, scale=1.0)
    floor = 1e-8 if dtype == torch.float64 else 1e-4
    return {
        "noise_prior": prior,
        "noise_constraint": GreaterThan(floor, initial_value=prior.mode),
        "batch_shape": batch_shape,
    }


def sampled_columns(covar_module: torch.nn.Module) -> dict[str, Any]:
    """Where in a row the one cloud is that a kernel reads, and its dimension."""
    kernels = distribution_kernels(covar_module)
    found = {
        (
            kernel.distance.dim if kernel.distance.inputs == "clouds" else None,
            None if columns is None else tuple(columns.tolist()),
        )
        for kernel, columns in kernels
    }
    dim, active_dims = found.pop() if len(found) == 1 else (None, None)
    if dim is None:
        raise ValueError(
            "sampling_noise=True needs a kernel that reads each row as one cloud of samples, got "
            f"{len(kernels)} distribution kernels on other inputs or on different columns."
        )
    return {"dim": dim, "active_dims": active_dims}
