"""Find the columns of rows that kernels read, and check that distributions fit the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures.kinds import Distributions, kind_of
from gp_distributions.rows.layout import Block


def distribution_kernels(module: torch.nn.Module) -> list[tuple[DistributionKernel, Block]]:
    """Return each distribution kernel of a module, with the block of a row that it reads.

    The columns of a block follow from the ``active_dims`` of the kernel and of the kernels that contain
    it. A kernel that occurs in several places may read several blocks.
    """
    return list(dict.fromkeys(_walk(torch.nn.ModuleList([module]), None)))


def _walk(
    module: torch.nn.Module, columns: tuple[int, ...] | None
) -> Iterator[tuple[DistributionKernel, Block]]:
    if isinstance(module, DistributionKernel):
        yield module, Block(module.distance.inputs, module.distance.dim, columns)
    for child in module.children():
        dims = child.active_dims if isinstance(child, Kernel) else None
        # A ScaleKernel selects the columns of its base kernel. Other kernels select from their input.
        if dims is None or isinstance(module, ScaleKernel):
            yield from _walk(child, columns)
        else:
            chosen = tuple(dims.tolist())
            yield from _walk(
                child, chosen if columns is None else tuple(columns[i] for i in chosen)
            )


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
    for _, block in distribution_kernels(covar_module):
        if block.columns is None and (block.kind, block.dim) != (kind, X.dim):
            raise ValueError(
                f"Expected {block.kind} of dimension {block.dim}, which the kernel reads, "
                f"got {type(X).__name__} of dimension {X.dim}. Make the kernel with "
                f'dim={X.dim} and inputs="{kind}".'
            )
