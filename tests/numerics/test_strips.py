"""Functions in strips agree with the same functions of the whole matrix, gradients included."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics import linear_algebra as strips
from gp_distributions.numerics.linear_algebra import entrywise

MATRIX = torch.rand(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(autouse=True)
def small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "_SMALL", 8)
    monkeypatch.setattr(strips, "_STRIP", 12)


def parameters(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    scale = 1 + torch.rand(*shape, generator=generator, dtype=torch.float64)
    return scale.requires_grad_(), torch.full(shape, 0.7).double().requires_grad_()


def of(scale: Tensor, power: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda matrix: power * (-matrix / scale.square()).exp() + matrix**power


@pytest.mark.parametrize("shape", [(1, 1), (3, 1, 1)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_agrees_with_the_whole(shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    matrix, inputs = MATRIX.expand(*batch, 7, 5), parameters(*shape)
    whole, split = of(*inputs)(matrix), entrywise(of(*inputs), matrix, inputs)
    torch.testing.assert_close(split, whole, rtol=1e-14, atol=0)
    upstream = torch.rand(whole.shape, dtype=torch.float64)
    expected = torch.autograd.grad(whole, inputs, upstream)
    found = torch.autograd.grad(split, inputs, upstream)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_no_operation_sees_the_whole_matrix() -> None:
    sizes = []

    def function(matrix: Tensor) -> Tensor:
        sizes.append(matrix.numel())
        return scale * matrix

    scale = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    entrywise(function, MATRIX, [scale]).sum().backward()
    assert max(sizes) <= 12
    sizes.clear()
    entrywise(function, MATRIX.clone().requires_grad_(), [scale])
    assert sizes == [35]


def test_a_parameter_without_effect() -> None:
    scale, power = parameters(1, 1)
    values = entrywise(lambda matrix: matrix * scale, MATRIX, [scale, power])
    gradients = torch.autograd.grad(values.sum(), [scale, power])
    assert [g.shape for g in gradients] == [(1, 1), (1, 1)]
    assert float(gradients[0]) == pytest.approx(float(MATRIX.sum()), rel=1e-12)
    assert float(gradients[1]) == 0
