"""Quadrature of densities, against grids fine enough to be exact."""

import math

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics.quadrature import importance_points


def banana(points: Tensor) -> Tensor:
    """A density that is neither normal nor symmetric."""
    x, y = points[:, 0], points[:, 1]
    return -0.5 * (x - 0.5).square() / 0.64 - 0.5 * (y - 0.4 * x.square()).square() / 0.16


def skewed(points: Tensor) -> Tensor:
    """A product of densities of logarithms of gamma variables, in any dimension."""
    return (3 * points - 2 * points.exp()).sum(-1)


def moments(points: Tensor, log_weights: Tensor) -> Tensor:
    weights = (log_weights - log_weights.logsumexp(0)).exp().unsqueeze(-1)
    mean = (weights * points).sum(0)
    return torch.cat([mean, (weights * (points - mean).square()).sum(0).sqrt()])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("density", [banana, skewed])
def test_two_dimensions_agree_with_a_fine_grid(density: object, seed: int) -> None:
    axis = torch.linspace(-6, 6, 601, dtype=torch.float64)
    fine = torch.cartesian_prod(axis, axis)
    expected = moments(fine, density(fine))  # type: ignore[operator]
    start = torch.zeros(1, 2, dtype=torch.float64)
    points, log_weights, densities = importance_points(density, start, 256, seed=seed)  # type: ignore[arg-type]
    assert torch.equal(densities, density(points))  # type: ignore[operator]
    assert log_weights.logsumexp(0).item() == pytest.approx(0, abs=1e-9)
    worth = 1 / (2 * log_weights).exp().sum().item()
    assert worth > 60
    tolerance = 4 * expected[2:].max().item() / math.sqrt(worth)
    torch.testing.assert_close(moments(points, log_weights), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dimension", [1, 5, 12])
def test_many_dimensions_agree_with_products_of_integrals(dimension: int) -> None:
    axis = torch.linspace(-12, 3, 4001, dtype=torch.float64).unsqueeze(-1)
    one = moments(axis, skewed(axis))
    start = torch.zeros(1, dimension, dtype=torch.float64)
    points, log_weights, _ = importance_points(skewed, start, 256, seed=0)
    worth = 1 / (2 * log_weights).exp().sum().item()
    assert worth > 60
    found = moments(points, log_weights)
    # Five standard errors.
    tolerance = 5 * one[1].item() / math.sqrt(worth)
    expected = one.repeat_interleave(dimension)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def test_the_mode_is_found_from_the_better_start() -> None:
    def two_modes(points: Tensor) -> Tensor:
        near, far = (points + 2).square().sum(-1), (points - 3).square().sum(-1)
        return torch.logaddexp(-5 - near / 0.02, -far / 0.02)

    start = torch.tensor([[-2.0, -2, -2], [2.8, 3.1, 3.0]], dtype=torch.float64)
    points, log_weights, _ = importance_points(two_modes, start, 128, seed=0)
    found = moments(points, log_weights)
    expected = torch.tensor([3.0, 3, 3, 0.1, 0.1, 0.1], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("deviation", [0.005, 0.5, 4.0])
def test_first_points_follow_the_curvature_within_bounds(deviation: float) -> None:
    """A nearly flat density is searched no farther than the prior, and a peak is not missed."""
    start = torch.zeros(1, 1, dtype=torch.float64)
    points, *_ = importance_points(lambda p: -0.5 * (p[:, 0] / deviation) ** 2, start, 1024, seed=0)
    expected = min(max(deviation, 0.02), 1.5)
    assert points[:768].std().item() == pytest.approx(expected, rel=0.02)  # by Laplace
    assert points[768:1024].std().item() == pytest.approx(1, rel=0.02)  # as the prior
