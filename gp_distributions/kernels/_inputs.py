"""Whether kernels read the distributions that they are given."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures._kinds import KINDS, Distributions


def check_kind(X: Distributions | Tensor, covar_module: torch.nn.Module) -> None:
    """Raise where kernels would read the rows of distributions as something else.

    Raises:
        ValueError: If a kernel is of another dimension, or of other inputs.
    """
    if isinstance(X, Tensor):
        return
    kind = KINDS[type(X)]
    for kernel in covar_module.modules():
        if isinstance(kernel, DistributionKernel) and kernel.active_dims is None:
            distance = kernel.distance
            if (distance.inputs, distance.dim) != (kind, X.dim):
                raise ValueError(
                    f"Expected {distance.inputs} of dimension {distance.dim}, which the kernel reads, "
                    f"got {type(X).__name__} of dimension {X.dim}. Their kernel is made with "
                    f'dim={X.dim} and inputs="{kind}".'
                )
