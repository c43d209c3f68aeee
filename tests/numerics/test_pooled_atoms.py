"""Draws from the average of distributions."""

import pytest
import torch

from gp_distributions.numerics.pooled_atoms import draw_atoms, median_distance


def test_every_cloud_counts_once_and_atoms_by_weight() -> None:
    points = torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]]).double()
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]]).double()
    drawn = draw_atoms(points, weights, 10_000)
    counts = torch.stack([(drawn == value).sum() for value in range(4)])
    # Standard deviations of frequencies are below 0.005.
    expected = torch.tensor([0.125, 0.375, 0.5, 0.0])
    torch.testing.assert_close(counts / 10_000, expected, rtol=0, atol=0.02)
    assert counts[3] == 0


def test_gaussian_components() -> None:
    mean = torch.tensor([[[1.0, 2.0]]]).double()
    covariance = torch.tensor([[[[2.0, 1.2], [1.2, 1.0]]]]).double()
    drawn = draw_atoms(mean, torch.ones(1, 1).double(), 20_000, covariance=covariance)
    torch.testing.assert_close(drawn.mean(0), mean[0, 0], rtol=0, atol=0.05)
    torch.testing.assert_close(drawn.T.cov(), covariance[0, 0], rtol=0, atol=0.1)
    without_spread = draw_atoms(mean, torch.ones(1, 1).double(), 5, covariance=0 * covariance)
    assert torch.equal(without_spread, mean[0].expand(5, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_seed(dtype: torch.dtype) -> None:
    points = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    weights = torch.ones(3, 5, dtype=dtype)
    one, same, other = (draw_atoms(points, weights, 20, seed=s) for s in (0, 0, 1))
    assert one.dtype == torch.float64
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_median_distance() -> None:
    assert median_distance(torch.tensor([[0.0], [0.0], [0.0], [1.0], [3.0]]).double()) == 2.0
    assert median_distance(torch.ones(4, 2).double()) == 0.0
