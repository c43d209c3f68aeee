"""Averages of quantile functions over cells against loops, and sorting against PyTorch."""

from fractions import Fraction

import pytest
import torch
from cases import rand, randn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gp_distributions.numerics.quantiles import (
    argsort,
    cell_quantiles,
    sort,
    uniform_cell_quantiles,
    weighted_cell_quantiles,
)

EPS = torch.finfo(torch.float64).eps
# Numbers of atoms and cells: equal, one divides the other, coprime, with a common factor, one.
SIZES = [(6, 6), (4, 12), (12, 4), (7, 5), (5, 7), (6, 4), (1, 5), (5, 1), (1, 1), (30, 100)]
SIZES += [(11, 2), (101, 7)]  # many values in each cell


def exact_cell_averages(values: list[float], weights: list[int], num_cells: int) -> Tensor:
    """Averages of the quantile function over each cell, in rational arithmetic."""
    total = sum(weights)
    averages = []
    for cell in range(num_cells):
        average, knot = Fraction(0), Fraction(0)
        for value, weight in sorted(zip(values, weights, strict=True)):
            start, knot = knot, knot + Fraction(weight, total)
            low, high = (
                max(start, Fraction(cell, num_cells)),
                min(knot, Fraction(cell + 1, num_cells)),
            )
            average += Fraction(value) * max(high - low, Fraction(0)) * num_cells
        averages.append(float(average))
    return torch.tensor(averages, dtype=torch.float64)


def rounding(values: Tensor, num_cells: int) -> float:
    """Bound on rounding: n eps max|x| for a running sum, and N times that of two for a cell.

    A factor of two leaves room for rounding of the weights.
    """
    return 4 * num_cells * (values.shape[-1] + 1) * EPS * max(float(values.abs().max()), 1.0)


def random_weights(*shape: int, seed: int = 1) -> Tensor:
    weights = 0.1 + rand(*shape, seed=seed)
    return weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize(("size", "num_cells"), SIZES)
def test_uniform_is_the_integral(size: int, num_cells: int) -> None:
    values = randn(size)
    expected = exact_cell_averages(values.tolist(), [1] * size, num_cells)
    actual = uniform_cell_quantiles(values, num_cells)
    torch.testing.assert_close(actual, expected, rtol=0, atol=rounding(values, num_cells))


@settings(deadline=None, max_examples=40)
@given(
    atoms=st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 5)), min_size=1, max_size=8).filter(
        lambda atoms: any(count for _, count in atoms)
    ),
    num_cells=st.integers(1, 12),
    tracked=st.booleans(),
)
def test_ties_zero_weights_and_kinks_in_every_combination(
    atoms: list[tuple[int, int]], num_cells: int, tracked: bool
) -> None:
    values = torch.tensor([value / 4 for value, _ in atoms], dtype=torch.float64)
    counts = [count for _, count in atoms]
    weights = (torch.tensor(counts, dtype=torch.float64) / sum(counts)).requires_grad_(tracked)
    expected = exact_cell_averages(values.tolist(), counts, num_cells)
    actual = weighted_cell_quantiles(values, weights, num_cells).detach()
    torch.testing.assert_close(actual, expected, rtol=0, atol=rounding(values, num_cells))


class TestGradient:
    @pytest.mark.parametrize(("size", "num_cells"), SIZES[:-1])
    def test_in_values(self, size: int, num_cells: int) -> None:
        values = randn(2, size).requires_grad_()
        assert torch.autograd.gradcheck(lambda v: uniform_cell_quantiles(v, num_cells), values)

    @pytest.mark.parametrize("num_cells", [1, 4, 7])
    def test_in_general_position(self, num_cells: int) -> None:
        values, weights = randn(2, 6).requires_grad_(), random_weights(2, 6)
        assert torch.autograd.gradcheck(
            lambda v, w: weighted_cell_quantiles(v, w, num_cells),
            (values, weights.requires_grad_()),
        )

    def test_in_weights_at_kinks_is_the_mean_of_both_sides(self) -> None:
        values, num_cells, step = randn(4), 4, 1e-4
        weights = torch.full((4,), 0.25, dtype=torch.float64)  # every knot on an edge

        def averages(w: Tensor) -> Tensor:
            return weighted_cell_quantiles(values, w, num_cells)

        shifts = step * torch.eye(4, dtype=torch.float64)
        there = averages(weights)
        above = torch.stack([averages(weights + s) - there for s in shifts], dim=-1) / step
        below = torch.stack([there - averages(weights - s) for s in shifts], dim=-1) / step
        jacobian = torch.autograd.functional.jacobian(averages, weights)
        # The averages are linear in the weights on either side, so the error is rounding over the step.
        atol = rounding(values, num_cells) / step
        torch.testing.assert_close(jacobian, (above + below) / 2, rtol=0, atol=atol)
        assert float((above - below).abs().max()) > 0.1, "no kink: this test tests nothing"


@pytest.mark.parametrize(("size", "num_cells"), SIZES)
def test_padded_is_the_integral(size: int, num_cells: int) -> None:
    """Clouds of several sizes, whose padding lies anywhere."""
    values, weights = randn(3, 1, size + 4), torch.zeros(3, size + 4).double()
    for cloud, some in enumerate((range(size), range(2, size + 4), range(0, size + 4, 3))):
        weights[cloud, list(some)] = 1 / len(some)
    found = cell_quantiles(values, weights, num_cells)
    atol = rounding(values, num_cells)
    for line, own, cells in zip(values[:, 0], weights > 0, found[:, 0], strict=True):
        expected = exact_cell_averages(line[own].tolist(), [1] * int(own.sum()), num_cells)
        torch.testing.assert_close(cells, expected, rtol=0, atol=atol)
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: cell_quantiles(v, weights, num_cells), values)


@pytest.mark.parametrize("size", [3, 5])
def test_clouds_with_equal_and_unequal_weights(size: int) -> None:
    values = randn(2, 4, size)
    equal = torch.full((2, size), 1 / size, dtype=torch.float64)
    unequal = torch.stack([equal[0], torch.arange(1.0, size + 1).double()])
    unequal[1] /= unequal[1].sum()
    for weights in (equal, unequal, equal.clone().requires_grad_()):
        found = cell_quantiles(values, weights, 4)
        expected = weighted_cell_quantiles(values, weights.unsqueeze(-2), 4)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
        assert found.requires_grad == weights.requires_grad


@pytest.mark.parametrize("tracked", [False, True])
def test_sorts_the_last_axis(device: torch.device, tracked: bool) -> None:
    values = randn(3, 4, 17).to(device)
    expected = values.sort(dim=-1).values
    assert torch.equal(sort(values.requires_grad_(tracked)), expected)
    assert torch.equal(values.gather(-1, argsort(values)), expected)


def test_any_strides() -> None:
    values = randn(3, 4, 17)
    for view in (values.mT, values[..., ::2], values[:, :1].expand(3, 4, 17)):
        expected = view.sort(dim=-1).values
        assert torch.equal(sort(view), expected)
        assert torch.equal(view.gather(-1, argsort(view)), expected)


def test_gradient_follows_the_values() -> None:
    values = randn(2, 17).requires_grad_()
    assert torch.autograd.gradcheck(sort, values)
    with torch.no_grad():
        assert not sort(values).requires_grad
