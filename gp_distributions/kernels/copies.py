"""Kernels made from others: with an outputscale, as copies that share distances, and in batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.expected_kernel import ExpectedKernel


def with_outputscale(kernel: Kernel) -> Kernel:
    """Return a kernel with an outputscale, the variance of functions, for a fit to learn.

    Without one, the variance of the function is that of the targets with noise, and only the noise and
    the lengthscale fit the data.

    Args:
        kernel: A kernel, which the result holds. A kernel with an outputscale in any of its parts stays
            as it is; to fix the variance at one, pass ``ScaleKernel(kernel)`` with
            ``raw_outputscale.requires_grad_(False)``.

    Returns:
        ``ScaleKernel(kernel)`` with an outputscale of one, so that covariances do not change. An
        :class:`ExpectedKernel` gets it inside, because its variances are those of its atoms.
    """
    if any(isinstance(part, ScaleKernel) for part in kernel.modules()):
        return kernel
    if isinstance(kernel, ExpectedKernel):
        kernel.base_kernel = with_outputscale(kernel.base_kernel)
        return kernel
    scaled = ScaleKernel(kernel, batch_shape=kernel.batch_shape)
    scaled.raw_outputscale.data = scaled.raw_outputscale.data.double()  # one to the last digit
    scaled.outputscale = 1.0
    return scaled


CandidateT = TypeVar("CandidateT")
ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


def as_kernel(candidate: Kernel | Distance) -> Kernel:
    """Return a kernel: a distance gets the default profile."""
    return DistributionKernel(candidate) if isinstance(candidate, Distance) else candidate


def copied(candidates: Mapping[str, CandidateT]) -> dict[str, CandidateT]:
    """Copy candidates such that no fit of one changes another.

    Candidates that shared a distance still share it, so that it represents the clouds only once, unless
    it has parameters that are learned or still to be set from data.
    """
    shared = {
        id(distance): distance
        for candidate in candidates.values()
        for distance in distances_of(candidate)
        if _is_settled(distance)
    }
    memo = {key: copy.deepcopy(distance) for key, distance in shared.items()}
    return {name: copy.deepcopy(c, dict(memo)) for name, c in candidates.items()}


def distances_of(candidate: Any) -> Sequence[Distance]:
    """Return all distances in a module; a function has none."""
    modules = candidate.modules() if isinstance(candidate, torch.nn.Module) else ()
    return [module for module in modules if isinstance(module, Distance)]


def _is_settled(distance: Distance) -> bool:
    learned = any(parameter.requires_grad for parameter in distance.parameters())
    tensors = chain(distance.parameters(), distance.buffers())
    return not learned and not any(bool(tensor.isnan().any()) for tensor in tensors)


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
