"""Many copies of a kernel with different hyperparameters, evaluated at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


def batched(kernel: Kernel, values: Mapping[str, Tensor], size: int) -> Kernel:
    """Return a batch of kernels that share the distances, and the distances remembered, of one kernel.

    GPyTorch's ``expand_batch`` leaves kernels within sums and products as they are.

    Args:
        kernel: A kernel without batch axes.
        values: For some of its parameters, by name, ``K`` values each: the values of the raw parameters,
            with a leading axis. All others have the same value in each kernel.
        size: The number ``K``.

    Returns:
        A kernel of batch shape ``K`` in evaluation mode, whose parameters require no gradient.
    """
    many = repeated(kernel, size)
    for name, value in values.items():
        many.get_parameter(name).data = value.detach().clone()
    for part in many.modules():
        if isinstance(part, Kernel):
            part.batch_shape = torch.Size([size])
    return many.eval()


def repeated(module: ModuleT, size: int) -> ModuleT:
    """Return a copy of a module, with its parameters repeated along an axis, but for distances."""
    return _mapped(module, lambda value: value.expand(size, *value.shape).clone())


def taken(module: ModuleT, places: int | Tensor) -> ModuleT:
    """Return one of the modules of a batch, or a batch of some of them.

    Args:
        module: A batch of kernels or of likelihoods.
        places: The number of one, or a tensor of ``n`` numbers.
    """
    found = _mapped(module, lambda value: value[places].clone())
    for part in found.modules():
        if isinstance(part, Kernel):
            part.batch_shape = torch.Size([] if isinstance(places, int) else [len(places)])
    return found


def _mapped(module: ModuleT, function: Callable[[Tensor], Tensor]) -> ModuleT:
    shared = {id(part): part for part in module.modules() if isinstance(part, Distance)}
    found = copy.deepcopy(module, dict(shared))
    fixed = {id(p) for part in shared.values() for p in part.parameters()}
    for parameter in found.parameters():
        if id(parameter) not in fixed:
            parameter.data = function(parameter.detach())
            parameter.requires_grad_(False)
    return found
