"""Find the columns of rows that kernels read, and check that distributions fit the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures.kinds import Distributions, kind_of


def distribution_kernels(module: torch.nn.Module) -> list[tuple[DistributionKernel, Tensor | None]]:
    """Return each distribution kernel of a module, with the columns of a row that it reads.

    The columns follow from the ``active_dims`` of the kernel and of the kernels that contain it.
    ``None`` stands for all columns.
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
        # A ScaleKernel selects the columns of its base kernel. Other kernels select from their input.
        if dims is None or isinstance(module, ScaleKernel):
            yield from _walk(child, columns)
        else:
            yield from _walk(child, dims if columns is None else columns[dims])


def check_kind(X: Distributions | Tensor, covar_module: torch.nn.Module) -> None:
    """Check that kernels expect the kind and dimension of the distributions in ``X``.

    Raises:
        TypeError: If ``X`` is neither distributions nor a tensor.
        ValueError: If a kernel expects another kind or dimension, or if all kernels are
            GPyTorch's own, which do not read distributions.
    """
    kind = kind_of(X)
    if isinstance(X, Tensor):
        return
    modules = [module for module in covar_module.modules() if isinstance(module, Kernel)]
    if all(type(module).__module__.startswith("gpytorch.") for module in modules):
        raise ValueError(
            f"Expected a kernel of distributions, got a {type(covar_module).__name__}, which would "
            "compare the columns of rows, padding included. Use for example "
            "SlicedWassersteinKernel(dim). If columns are to be compared, pass rows: clouds.pack()."
        )
    for kernel, columns in distribution_kernels(covar_module):
        distance = kernel.distance
        if columns is None and (distance.inputs, distance.dim) != (kind, X.dim):
            raise ValueError(
                f"Expected {distance.inputs} of dimension {distance.dim}, which the kernel reads, "
                f"got {type(X).__name__} of dimension {X.dim}. Make the kernel with "
                f'dim={X.dim} and inputs="{kind}".'
            )
