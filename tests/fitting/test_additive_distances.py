"""Squared distances as sums over coordinates, against those of each coordinate alone."""

import pytest
import torch
from cases import random_rows
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    DistributionKernel,
    RigidSlicedWasserstein,
    ScaledDistance,
    SlicedWasserstein,
)
from gp_distributions.distances.evaluation import looking_up
from gp_distributions.fitting.additive_distances import AdditiveDistances


def test_sums_over_coordinates() -> None:
    rows = random_rows(5)
    distance = ScaledDistance(SlicedWasserstein(2))
    distance.scales = [2.0, 1.0]
    before = distance.raw_scales.clone()
    with torch.no_grad():
        exact = distance.squared(rows)
    factors = torch.ones(2, rows.shape[-1]).double()
    factors[0, 1::3] = 0.0
    factors[1, 0::3] = 0.0
    expected = sum(
        scale.square() * distance.distance.squared(rows * factor)
        for scale, factor in zip(distance.scales, factors, strict=True)
    )
    with looking_up(AdditiveDistances([distance])):
        found = distance.squared(rows)
        assert torch.equal(found, distance.squared(rows))
        assert distance.squared(rows.expand(3, *rows.shape)).shape == (3, 5, 5)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        other = ScaledDistance(SlicedWasserstein(2))
        torch.testing.assert_close(other.squared(rows), SlicedWasserstein(2).squared(rows))
        new = distance.squared(rows, random_rows(3, seed=1))
    torch.testing.assert_close(new, distance.squared(rows, random_rows(3, seed=1)))
    assert distance.raw_scales.grad is not None
    assert torch.equal(distance.raw_scales, before)
    with torch.no_grad():
        assert torch.equal(distance.squared(rows), exact)


def test_it_is_exact_for_the_means() -> None:
    """Of point masses, sliced Wasserstein distances are sums over coordinates."""
    points = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).double()
    rows = torch.cat([points, torch.ones(6, 1)], dim=-1)
    distance = ScaledDistance(SlicedWasserstein(4))
    distance.scales = [1.0, 2.0, 3.0, 4.0]
    kernel = ScaleKernel(DistributionKernel(distance))
    expected = kernel(rows).to_dense()
    with looking_up(AdditiveDistances([distance])):
        torch.testing.assert_close(kernel(rows).to_dense(), expected)


def test_coordinates_that_rotate_together_are_one_term() -> None:
    rows = torch.rand(4, 16, generator=torch.Generator().manual_seed(0)).double()
    distance = ScaledDistance(RigidSlicedWasserstein(3, marks=1, num_slices=20, max_degree=2))
    distance.scales = [1.0, 1.0, 1e-9]
    exact = distance.squared(rows)
    with looking_up(AdditiveDistances([distance])):
        torch.testing.assert_close(distance.squared(rows), exact)


@pytest.mark.parametrize("num", [1, 2])
def test_several_distances(num: int) -> None:
    rows = random_rows(5)
    distances = [ScaledDistance(SlicedWasserstein(2, center=bool(i))) for i in range(2)]
    plain = [distance.squared(rows) for distance in distances]
    with looking_up(AdditiveDistances(distances[:num])):
        changed = [
            not torch.equal(d.squared(rows), p) for d, p in zip(distances, plain, strict=True)
        ]
    assert changed == [True, num == 2]
