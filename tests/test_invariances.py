"""What must not change a kernel; what must not change a distance, its own test case covers."""

import pytest
import torch
from cases import KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_diagonal_of_kernel_is_that_of_its_matrix(name: str) -> None:
    kernel, inputs = KERNELS[name](), KERNELS[name].inputs
    x1, x2 = inputs.rows(9, atoms=40), inputs.rows(9, seed=1, atoms=40)
    for other in (x1, x2):
        expected = kernel(x1, other).to_dense().diagonal()
        torch.testing.assert_close(kernel(x1, other, diag=True), expected)
