"""Gram matrices of many random clouds are positive semi-definite, for every kernel."""

import functools

import pytest
import torch
from cases import DISTANCES, KERNELS
from torch import Tensor

from gp_distributions import DistributionKernel
from gp_distributions.distances import Distance


@functools.cache
def known(name: str) -> tuple[Distance, Tensor]:
    """A distance that remembers the distances of 120 clouds to each other, and the clouds."""
    distance, rows = DISTANCES[name](), DISTANCES[name].inputs.rows(120)
    distance.squared(rows)
    return distance, rows


@pytest.mark.parametrize("name", KERNELS)
def test_smallest_eigenvalue_is_not_negative(name: str) -> None:
    distance, rows = known(name.rpartition("-")[0])
    kernel = DistributionKernel(distance, KERNELS[name]().profile)
    median = float(distance.squared(rows).median().sqrt())
    for scale in (0.2, 1.0, 5.0):
        kernel.lengthscale = scale * median
        with torch.no_grad():
            eigenvalues = torch.linalg.eigvalsh(kernel(rows).to_dense())
        assert float(eigenvalues[0]) >= -1e-10 * float(eigenvalues[-1])
