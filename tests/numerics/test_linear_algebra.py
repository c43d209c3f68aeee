"""Cholesky factors and their jitter, roots, work in one thread, and functions in strips."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator

import linear_operator
import pytest
import torch
from cases import rand, randn
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from gp_distributions.numerics import linear_algebra as strips
from gp_distributions.numerics.linear_algebra import (
    cholesky,
    entrywise,
    log_densities,
    square_root,
)
from gp_distributions.warnings import JitterWarning, collected


@contextlib.contextmanager
def jitter_noted() -> Iterator[list[float]]:
    """Collect the sizes of jitter, which are known at the end of the block."""
    sizes: list[float] = []
    with collected(JitterWarning) as found:
        yield sizes
    for message, _ in found:
        added = re.search(r"jitter of (\S+) was added", message)
        sizes.append(float(added[1]) if added else math.nan)


def positive(*shape: int, seed: int = 0) -> Tensor:
    root = randn(*shape, shape[-1], seed=seed)
    return root @ root.mT + torch.eye(shape[-1], dtype=torch.float64)


def lacking(size: float, count: int = 3) -> Tensor:
    """A diagonal matrix that becomes positive definite with a jitter of more than ``size``."""
    return torch.diag(torch.tensor([-size, *[1.0] * (count - 1)], dtype=torch.float64))


class TestFactors:
    @pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 1)])
    def test_without_jitter(self, shape: tuple[int, ...]) -> None:
        matrix = positive(*shape)
        with jitter_noted() as jitter:
            assert torch.equal(cholesky(matrix), torch.linalg.cholesky(matrix))
        assert not jitter

    @pytest.mark.parametrize(
        ("size", "expected"), [(0.0, 1e-8), (5e-9, 1e-8), (2e-8, 1e-7), (5e-6, 1e-5), (5e-4, 1e-3)]
    )
    def test_least_jitter_that_suffices(self, size: float, expected: float) -> None:
        matrix = lacking(size)
        with jitter_noted() as jitter:
            factor = cholesky(matrix)
        assert jitter == pytest.approx([expected])
        raised = matrix + expected * torch.eye(3, dtype=torch.float64)
        torch.testing.assert_close(factor @ factor.mT, raised, rtol=1e-14, atol=1e-16)

    def test_only_matrices_of_a_batch_that_need_it(self) -> None:
        sound, slightly, badly = positive(3), lacking(0.0), lacking(5e-6)
        with jitter_noted() as jitter:
            factors = cholesky(torch.stack([sound, slightly, badly]))
        assert jitter == pytest.approx([1e-5])
        assert torch.equal(factors[0], torch.linalg.cholesky(sound))
        # The one that needed less keeps the jitter that was enough.
        assert float(factors[1][0, 0].square()) == pytest.approx(1e-8)
        assert float(factors[2][0, 0].square()) == pytest.approx(5e-6)

    def test_settings_of_linear_operator_do_not_matter(self) -> None:
        with (
            linear_operator.settings.cholesky_max_tries(1),
            linear_operator.settings.cholesky_jitter(double_value=0.1),
            jitter_noted() as jitter,
        ):
            cholesky(lacking(5e-6))
        assert jitter == pytest.approx([1e-5])

    @pytest.mark.parametrize("size", [None, 5e-6])
    def test_gradient(self, size: float | None) -> None:
        matrix = positive(3) if size is None else lacking(size) + 1e-7 * positive(3)

        def of(values: Tensor) -> Tensor:
            with jitter_noted():
                return cholesky((values + values.mT) / 2).tril()

        assert torch.autograd.gradcheck(of, matrix.requires_grad_(), eps=1e-9, atol=1e-2, rtol=1e-2)


class TestErrors:
    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_not_finite(self, value: float) -> None:
        matrix = positive(2, 3)
        matrix[1, 0, 0] = matrix[1, 2, 1] = value
        with pytest.raises(NanError, match="finite covariance matrix, got 2 of 18 entries"):
            cholesky(matrix)

    @pytest.mark.parametrize(
        ("dtype", "largest"), [(torch.float64, "1e-03"), (torch.float32, "1e-01")]
    )
    def test_not_positive_definite(self, dtype: torch.dtype, largest: str) -> None:
        message = f"even with a jitter of {largest} on its diagonal"
        with jitter_noted() as jitter, pytest.raises(NotPSDError, match=message):
            cholesky(lacking(0.5).to(dtype))
        assert not jitter


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_log_densities(batch: tuple[int, ...], noisy: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    roots, differences, noise = (
        rand(*batch, *shape, seed=generator) for shape in ((4, 4), (4, 3), (4,))
    )
    covariance = roots @ roots.mT + torch.diag_embed(0.1 + noise)
    inputs = [differences, roots @ roots.mT, 0.1 + noise] if noisy else [differences, covariance]
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(4).double(), covariance.unsqueeze(-3)
    )
    torch.testing.assert_close(log_densities(*inputs), normal.log_prob(differences.mT))

    def densities(differences: Tensor, matrix: Tensor, *noise: Tensor) -> Tensor:
        return log_densities(differences, (matrix + matrix.mT) / 2, *noise)

    assert torch.autograd.gradcheck(densities, [x.clone().requires_grad_() for x in inputs])


@pytest.mark.parametrize("at_zero", [0.0, 1.0])
def test_values_and_gradients(at_zero: float) -> None:
    values = torch.tensor([-1e-17, 0.0, 1e-300, 4.0], dtype=torch.float64, requires_grad=True)
    roots = square_root(values, at_zero=at_zero)
    expected = torch.tensor([at_zero, at_zero, 1e-150, 2.0], dtype=torch.float64)
    torch.testing.assert_close(roots, expected, rtol=1e-15, atol=0)
    (gradient,) = torch.autograd.grad(roots.sum(), values)
    expected = torch.tensor([0.0, 0.0, 0.5e150, 0.25], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-15, atol=0)


MATRIX = rand(7, 5)


@pytest.fixture(autouse=True)
def small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "_SMALL", 8)
    monkeypatch.setattr(strips, "_STRIP", 12)


def parameters(*shape: int) -> tuple[Tensor, Tensor]:
    scale = 1 + rand(*shape, seed=1)
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
