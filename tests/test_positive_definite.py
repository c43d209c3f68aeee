"""Gram matrices of many random clouds are positive semi-definite, for every kernel."""

import pytest
import torch
from cases import KERNELS


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("name", KERNELS)
def test_smallest_eigenvalue_is_not_negative(name: str, scale: float) -> None:
    kernel = KERNELS[name]()
    rows = KERNELS[name].inputs.rows(200)
    kernel.lengthscale = scale * float(kernel.distance.squared(rows).median().sqrt())
    with torch.no_grad():
        eigenvalues = torch.linalg.eigvalsh(kernel(rows).to_dense())
    assert float(eigenvalues[0]) >= -1e-10 * float(eigenvalues[-1])
