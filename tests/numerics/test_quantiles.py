"""Cell averages of quantile functions, against integration in rational arithmetic."""

from fractions import Fraction
from itertools import pairwise

import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gp_distributions.numerics import quantiles
from gp_distributions.numerics.quantiles import (
    cell_quantiles,
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


def random_values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_weights(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = 0.1 + torch.rand(*shape, generator=generator, dtype=torch.float64)
    return weights / weights.sum(-1, keepdim=True)


def exact_distance(
    x: Tensor, y: Tensor, p: int, a: Tensor | None = None, b: Tensor | None = None
) -> float:
    """W_p to the power p, by POT."""
    a, b = (w if w is None else w.numpy() for w in (a, b))
    return float(ot.wasserstein_1d(x.numpy(), y.numpy(), a, b, p=p))


@pytest.mark.parametrize(("size", "num_cells"), SIZES)
def test_uniform_is_the_integral(size: int, num_cells: int) -> None:
    values = random_values(size)
    expected = exact_cell_averages(values.tolist(), [1] * size, num_cells)
    actual = uniform_cell_quantiles(values, num_cells)
    torch.testing.assert_close(actual, expected, rtol=0, atol=rounding(values, num_cells))


@pytest.mark.parametrize(("size", "num_cells"), [(7, 5), (5, 7), (30, 4), (1001, 100)])
def test_sums_over_cells_are_a_matrix_product(
    size: int, num_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = random_values(2, size)
    monkeypatch.setattr(quantiles, "_MANY", 10**9)
    product = uniform_cell_quantiles(values, num_cells)
    monkeypatch.setattr(quantiles, "_MANY", 0)
    torch.testing.assert_close(
        uniform_cell_quantiles(values, num_cells), product, rtol=0, atol=1e-14
    )


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


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3)])
def test_batches_agree_with_a_loop(shape: tuple[int, ...]) -> None:
    values, weights = random_values(*shape, 5), random_weights(*shape, 5)
    flat = list(zip(values.reshape(-1, 5), weights.reshape(-1, 5), strict=True))
    expected = torch.stack([weighted_cell_quantiles(v, w, 7) for v, w in flat])
    actual = weighted_cell_quantiles(values, weights, 7)
    torch.testing.assert_close(actual, expected.unflatten(0, shape), rtol=0, atol=0)
    expected = torch.stack([uniform_cell_quantiles(v, 7) for v, _ in flat])
    # Rounding of a matrix product may depend on its shape.
    torch.testing.assert_close(
        uniform_cell_quantiles(values, 7),
        expected.unflatten(0, shape),
        rtol=0,
        atol=rounding(values, 7),
    )


class TestContraction:
    """Distances of cell averages against exact distances of quantile functions."""

    # Each divides the next, so averages over coarse cells are averages of those over finer cells.
    CELLS = (1, 5, 10, 50, 100, 1000)

    @pytest.mark.parametrize("p", [1, 2])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_never_overestimates_and_converges_from_below(self, p: int, weighted: bool) -> None:
        x, y = random_values(13), 1.5 * random_values(17, seed=2) + 0.3
        a, b = (random_weights(13), random_weights(17, seed=3)) if weighted else (None, None)

        def averages(values: Tensor, weights: Tensor | None, num_cells: int) -> Tensor:
            if weights is None:
                return uniform_cell_quantiles(values, num_cells)
            return weighted_cell_quantiles(values, weights, num_cells)

        distances = [
            float((averages(x, a, n) - averages(y, b, n)).abs().pow(p).mean()) for n in self.CELLS
        ]
        exact = exact_distance(x, y, p, a, b)
        for coarse, fine in pairwise([*distances, exact]):
            assert coarse <= fine * (1 + 1e-12)
        # Over a cell, the difference f of two quantile functions varies by at most the sum of their
        # ranges there: |f|'s average exceeds |average f| by half of that at most, f^2's exceeds
        # (average f)^2 by a quarter of its square (Popoviciu).
        span = float(x.max() - x.min() + y.max() - y.min())
        for distance, num_cells in zip(distances, self.CELLS, strict=True):
            gap = span / 2 if p == 1 else span**2 / 4
            assert exact - distance <= gap / num_cells


class TestGradient:
    @pytest.mark.parametrize(("size", "num_cells"), SIZES[:-1])
    def test_in_values(self, size: int, num_cells: int) -> None:
        values = random_values(2, size).requires_grad_()
        assert torch.autograd.gradcheck(lambda v: uniform_cell_quantiles(v, num_cells), values)

    @pytest.mark.parametrize("num_cells", [1, 4, 7])
    def test_in_general_position(self, num_cells: int) -> None:
        values, weights = random_values(2, 6).requires_grad_(), random_weights(2, 6)
        assert torch.autograd.gradcheck(
            lambda v, w: weighted_cell_quantiles(v, w, num_cells),
            (values, weights.requires_grad_()),
        )

    def test_in_weights_at_kinks_is_the_mean_of_both_sides(self) -> None:
        values, num_cells, step = random_values(4), 4, 1e-4
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


@pytest.mark.parametrize("size", [3, 5])
def test_clouds_with_equal_and_unequal_weights(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, 4, size, generator=generator, dtype=torch.float64)
    equal = torch.full((2, size), 1 / size, dtype=torch.float64)
    unequal = torch.stack([equal[0], torch.arange(1.0, size + 1).double()])
    unequal[1] /= unequal[1].sum()
    for weights in (equal, unequal, equal.clone().requires_grad_()):
        found = cell_quantiles(values, weights, 4)
        for cloud, own in enumerate(weights):
            expected = weighted_cell_quantiles(values[cloud], own, 4)
            torch.testing.assert_close(found[cloud], expected, rtol=0, atol=1e-14)
        assert found.requires_grad == weights.requires_grad
