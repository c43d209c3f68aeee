"""Gradients of kernels in rows and lengthscale agree with finite differences.

Those of distances, also where clouds or atoms coincide, are covered by their own test case.
"""

import pytest
import torch
from cases import KERNELS, as_rows, random_clouds
from torch import Tensor

# Every profile, with and without an embedding.
PROFILED = [n for n in KERNELS if n.rpartition("-")[0] in ("sw1", "sw2")]
ROWS = as_rows(random_clouds(3, sizes=(6, 6)))
OTHERS = as_rows(random_clouds(2, seed=1, sizes=(6, 6)))


@pytest.mark.parametrize("name", PROFILED)
def test_gradient_of_kernel_in_rows(name: str) -> None:
    kernel = KERNELS[name]().double()
    rows = ROWS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: kernel(x, OTHERS).to_dense(), rows, fast_mode=True)


@pytest.mark.parametrize("name", PROFILED)
def test_gradient_of_kernel_in_lengthscale(name: str) -> None:
    kernel = KERNELS[name]().double()

    def covariance(raw: Tensor) -> Tensor:
        return torch.func.functional_call(
            kernel, {"raw_lengthscale": raw}, (ROWS, OTHERS), {}
        ).to_dense()

    raw = kernel.raw_lengthscale.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(covariance, raw)
