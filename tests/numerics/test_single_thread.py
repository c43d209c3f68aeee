"""Results are the same with and without a gradient."""

import pytest
import torch

from gp_distributions.numerics.linear_algebra import concatenate, matmul


def uniform(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("grad", [False, True])
def test_matmul_and_concatenate(grad: bool) -> None:
    left, right = uniform(4, 2), uniform(5, 3, 2).requires_grad_(grad).transpose(-1, -2)
    product = matmul(left, right)
    torch.testing.assert_close(product, left @ right)
    assert product.requires_grad == grad
    joined = concatenate(product.flatten(-2), uniform(5, 2))
    torch.testing.assert_close(joined, torch.cat([product.flatten(-2), uniform(5, 2)], dim=-1))
    assert joined.requires_grad == grad
    thick = concatenate(product, uniform(5, 4, 2))
    torch.testing.assert_close(thick, torch.cat([product, uniform(5, 4, 2)], dim=-1))
