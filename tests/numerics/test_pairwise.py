"""Distances and products of all pairs."""

from collections.abc import Callable

import pytest
import torch
from cases import randn
from scipy.spatial.distance import cdist
from torch import Tensor

from gp_distributions.numerics.pairwise import column_products, manhattan, squared_euclidean

Metric = Callable[[Tensor, Tensor], Tensor]
METRICS = [(squared_euclidean, "sqeuclidean"), (manhattan, "cityblock")]
# Around the 128 rows of a strip of the symmetric Manhattan distance.
SIZES = [1, 2, 127, 128, 129, 256, 300]


def by_scipy(x1: Tensor, x2: Tensor, name: str) -> Tensor:
    return torch.from_numpy(cdist(x1.detach().numpy(), x2.detach().numpy(), name))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Tolerance relative to the largest, for rounding of inner products of a few dozen terms."""
    torch.testing.assert_close(
        actual.detach(), expected, rtol=0, atol=1e-13 * float(expected.max())
    )


@pytest.mark.parametrize(("distance", "name"), METRICS)
class TestBoth:
    @pytest.mark.parametrize("tracked", [False, True])
    @pytest.mark.parametrize("size", SIZES)
    def test_within(self, distance: Metric, name: str, size: int, tracked: bool) -> None:
        x = randn(size, 5).requires_grad_(tracked)
        actual = distance(x, x)
        if size > 1:
            assert_same(actual, by_scipy(x, x, name))
            assert torch.equal(actual, actual.T)
        assert torch.equal(actual.diagonal(), torch.zeros(size).double())

    @pytest.mark.parametrize("tracked", [False, True])
    def test_between(self, distance: Metric, name: str, tracked: bool) -> None:
        x1, x2 = randn(30, 5).requires_grad_(tracked), randn(200, 5, seed=1)
        assert_same(distance(x1, x2), by_scipy(x1, x2, name))
        assert_same(distance(x2, x1), by_scipy(x2, x1, name))

    def test_large_common_offset_costs_no_digits(self, distance: Metric, name: str) -> None:
        """Offset and differences are exact in floating point, so the distances must be accurate.

        Without centring, the squares would be 1e16, and rounding would swamp the distances.
        """
        x1, x2 = randn(20, 5).add(1e8), randn(30, 5, seed=1).add(1e8)
        for one, two in ((x1, x2), (x1, x1)):
            assert_same(distance(one, two), by_scipy(one, two, name))

    def test_gradient(self, distance: Metric, name: str) -> None:
        x1, x2 = randn(4, 3).requires_grad_(), randn(2, 5, 3, seed=1).requires_grad_()
        assert torch.autograd.gradcheck(distance, (x1, x2))
        assert torch.autograd.gradcheck(lambda x: distance(x, x), x1)
        assert torch.autograd.gradcheck(lambda x: distance(x, x), x2)

    def test_gradient_of_coincident_rows_is_zero(self, distance: Metric, name: str) -> None:
        x = randn(1, 3).repeat(4, 1).requires_grad_()
        for other in (x, x.detach().clone()):
            (gradient,) = torch.autograd.grad(distance(x, other).sum(), x)
            # Centring rounds coincident rows alike, so only rounding errors remain.
            assert float(gradient.abs().max()) <= 1e-14


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize(("shape1", "shape2"), [((), ()), ((2,), (2,)), ((3, 1), (2,)), ((), (2,))])
def test_close_rows_keep_their_digits(
    shape1: tuple[int, ...], shape2: tuple[int, ...], tracked: bool
) -> None:
    """Inner products alone would leave two digits of these distances: 1e-16 of 1e-14 and 1."""
    near = torch.cat([randn(1, 5), randn(1, 5)]) + 1e-7 * randn(2, 5, seed=1)
    x1 = torch.cat([near[:1].expand(*shape1, 1, 5), randn(*shape1, 6, 5, seed=2)], dim=-2)
    x2 = torch.cat([randn(*shape2, 6, 5, seed=3), near[1:].expand(*shape2, 1, 5)], dim=-2)
    both = torch.cat([x1.expand(*x2.shape[:-2], 7, 5), x2], dim=-2) if shape1 == shape2 else x1
    one, both = x1.requires_grad_(tracked), both.detach().requires_grad_(tracked)
    for left, right in ((one, x2), (x2, one), (both, both)):
        expected = (left.unsqueeze(-2) - right.unsqueeze(-3)).square().sum(-1)
        actual = squared_euclidean(left, right)
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
        if tracked:
            source = both if left is both else one
            found, known = (
                torch.autograd.grad(each[expected > 0].sqrt().sum(), source)[0]
                for each in (actual, expected)
            )
            torch.testing.assert_close(found, known, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(40, 7), (3, 9), (1, 1), (0, 4)])
def test_column_products(shape: tuple[int, int], device: torch.device) -> None:
    columns = randn(shape).to(device)
    for given in (columns, columns.mT.contiguous().mT):
        found = column_products(given)
        assert torch.equal(found, found.T)
        torch.testing.assert_close(found, columns.T @ columns)
