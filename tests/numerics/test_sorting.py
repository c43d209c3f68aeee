"""Sorting by NumPy agrees with PyTorch."""

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics.quantiles import argsort, sort


@pytest.fixture
def values() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, 17, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("tracked", [False, True])
def test_sorts_the_last_axis(values: Tensor, device: torch.device, tracked: bool) -> None:
    values = values.to(device)
    expected = values.sort(dim=-1).values
    assert torch.equal(sort(values.requires_grad_(tracked)), expected)
    assert torch.equal(values.gather(-1, argsort(values)), expected)


def test_any_strides(values: Tensor) -> None:
    for view in (values.mT, values[..., ::2], values[:, :1].expand(3, 4, 17)):
        expected = view.sort(dim=-1).values
        assert torch.equal(sort(view), expected)
        assert torch.equal(view.gather(-1, argsort(view)), expected)


def test_gradient_follows_the_values(values: Tensor) -> None:
    values = values[0, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(sort, values)
    with torch.no_grad():
        assert not sort(values).requires_grad
