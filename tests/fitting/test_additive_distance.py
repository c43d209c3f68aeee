"""Squared distances as sums over coordinates, against those of each coordinate alone."""

import torch
from cases import random_rows

from gp_distributions import ScaledDistance, SlicedWasserstein
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.fitting.scales import AdditiveDistance


def test_sums_over_coordinates() -> None:
    rows = random_rows(5)
    distance = ScaledDistance(SlicedWasserstein(2), standardize=False)
    distance.scales = [2.0, 1.0]
    before = distance.raw_scales.clone()
    factors = torch.ones(2, rows.shape[-1]).double()
    factors[0, 1::3] = 0.0
    factors[1, 0::3] = 0.0
    expected = sum(
        scale.square() * distance.distance.squared(rows * factor)
        for scale, factor in zip(distance.scales, factors, strict=True)
    )
    sums = AdditiveDistance(distance)
    for held in (EmbeddedRows(rows), EmbeddedRows(rows.expand(3, *rows.shape))):
        for _ in range(2):
            found = sums(held)
            torch.testing.assert_close(found, expected.expand(*held.rows.shape[:-2], 5, 5))
    found.sum().backward()
    assert distance.raw_scales.grad is not None
    assert torch.equal(distance.raw_scales, before)
    other = random_rows(3, seed=1)
    assert torch.equal(sums(rows, other), distance.squared(rows, other))


def test_it_is_exact_for_the_means() -> None:
    """Of point masses, sliced Wasserstein distances are sums over coordinates."""
    points = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).double()
    rows = torch.cat([points, torch.ones(6, 1)], dim=-1)
    distance = ScaledDistance(SlicedWasserstein(4), standardize=False)
    distance.scales = [1.0, 2.0, 3.0, 4.0]
    found = AdditiveDistance(distance)(EmbeddedRows(rows))
    torch.testing.assert_close(found, distance.squared(rows))
