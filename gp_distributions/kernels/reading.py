"""What kernels read of the rows that they are given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures.kinds import Distributions, kind_of


def distribution_kernels(module: torch.nn.Module) -> list[tuple[DistributionKernel, Tensor | None]]:
    """The distribution kernels of a module, each once, with the columns of a row that they read.

    Columns are those of ``active_dims``, of the kernel and of the kernels around it; ``None``: all.
    """
    found: dict[DistributionKernel, Tensor | None] = {}
    for kernel, columns in _walk(torch.nn.ModuleList([module]), None):
        found.setdefault(kernel, columns)
    return list(found.items())


def _walk(
    module: torch.nn.Module, columns: Tensor | None
) -> Iterator[tuple[DistributionKernel, Tensor | None]]:
    if isinstance(module, DistributionKernel):
        yield module, columns
    for child in module.children():
        dims = child.active_dims if isinstance(child, Kernel) else None
        # A ScaleKernel selects for its base kernel, others only among what is given to them.
        if dims is None or isinstance(module, ScaleKernel):
            yield from _walk(child, columns)
        else:
            yield from _walk(child, dims if columns is None else columns[dims])


def check_kind(X: Distributions | Tensor, covar_module: torch.nn.Module) -> None:
    """Raise where kernels would read the rows of distributions as something else.

    Raises:
        TypeError: If ``X`` is neither distributions nor a tensor.
        ValueError: If a kernel is of another dimension, or of other inputs, or if all are GPyTorch's,
            of which none reads distributions.
    """
    kind = kind_of(X)
    if isinstance(X, Tensor):
        return
    modules = [module for module in covar_module.modules() if isinstance(module, Kernel)]
    if all(type(module).__module__.startswith("gpytorch.") for module in modules):
        raise ValueError(
            f"Expected a kernel of distributions, got a {type(covar_module).__name__} that would "
            "compare columns of rows, padding included. Take for example "
            "SlicedWassersteinKernel(dim), or give rows, clouds.pack(), if that is meant."
        )
    for kernel, columns in distribution_kernels(covar_module):
        distance = kernel.distance
        if columns is None and (distance.inputs, distance.dim) != (kind, X.dim):
            raise ValueError(
                f"Expected {distance.inputs} of dimension {distance.dim}, which the kernel reads, "
                f"got {type(X).__name__} of dimension {X.dim}. Their kernel is made with "
                f'dim={X.dim} and inputs="{kind}".'
            )
