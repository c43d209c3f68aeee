"""Many copies of a kernel with different hyperparameters, evaluated at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance


def batched(kernel: Kernel, values: Mapping[str, Tensor]) -> Kernel:
    """Return a batch of kernels that share the distances, and the distances remembered, of one kernel.

    GPyTorch's ``expand_batch`` leaves kernels within sums and products as they are.

    Args:
        kernel: A kernel without batch axes.
        values: For some of its parameters, by name, ``L`` values each: the values of the raw parameters,
            with a leading axis.

    Returns:
        A kernel of batch shape ``L`` in evaluation mode, whose parameters require no gradient.
    """
    shared = {id(part): part for part in kernel.modules() if isinstance(part, Distance)}
    many = copy.deepcopy(kernel, dict(shared))
    size = torch.Size({len(value) for value in values.values()} or {1})
    for name, value in values.items():
        owner, _, raw = name.rpartition(".")
        parameter = torch.nn.Parameter(value.detach().clone(), requires_grad=False)
        many.get_submodule(owner)._parameters[raw] = parameter
    fixed = {id(p) for part in shared.values() for p in part.parameters()}
    for parameter in many.parameters():
        if id(parameter) not in fixed:
            parameter.requires_grad_(False)
    for part in many.modules():
        if isinstance(part, Kernel):
            part.batch_shape = size
    return many.eval()
