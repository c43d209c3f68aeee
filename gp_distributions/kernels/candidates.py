"""Kernels and distances as candidates that are fitted one after the other."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import torch
from gpytorch.kernels import Kernel

from gp_distributions.distances.base import Distance
from gp_distributions.kernels.distribution_kernel import DistributionKernel

CandidateT = TypeVar("CandidateT")


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
