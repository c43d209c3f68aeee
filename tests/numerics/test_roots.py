"""Square roots where the derivative is infinite."""

import pytest
import torch

from gp_distributions.numerics.linear_algebra import square_root


@pytest.mark.parametrize("at_zero", [0.0, 1.0])
def test_values_and_gradients(at_zero: float) -> None:
    values = torch.tensor([-1e-17, 0.0, 1e-300, 4.0], dtype=torch.float64, requires_grad=True)
    roots = square_root(values, at_zero=at_zero)
    expected = torch.tensor([at_zero, at_zero, 1e-150, 2.0], dtype=torch.float64)
    torch.testing.assert_close(roots, expected, rtol=1e-15, atol=0)
    (gradient,) = torch.autograd.grad(roots.sum(), values)
    expected = torch.tensor([0.0, 0.0, 0.5e150, 0.25], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-15, atol=0)
