"""Nearest rotations: between the angles of the grid, and in space."""

import math

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics.rotations import nearest_rotation


def cloud(dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(12, dim, generator=generator, dtype=torch.float64)
    weights = 0.5 + torch.rand(12, generator=generator, dtype=torch.float64)
    return points * torch.tensor([3.0, 1.0, 0.5])[:dim], weights / weights.sum()


@pytest.mark.parametrize("steps", [0.25, 100.4, -33.3])
def test_angles_between_those_of_the_grid(steps: float) -> None:
    """The grid has steps of half a degree; the parabola finds the angle within 2% of a step."""
    points, weights = cloud(2)
    angle = math.radians(0.5 * steps)
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    ).double()
    found, squared = nearest_rotation(points, weights, points @ turn.mT, weights)
    torch.testing.assert_close(found @ found.mT, torch.eye(2).double())
    error = math.atan2(*(turn.mT @ found)[:, 0].flip(0).tolist())
    assert abs(error) < 0.02 * math.radians(0.5)
    # One step away, the squared distance is about (|x| times the step)^2.
    size = float((weights.unsqueeze(-1) * points.square()).sum())
    assert squared < 0.01 * size * math.radians(0.5) ** 2


@pytest.mark.parametrize("seed", range(20))
def test_squared_distances_to_itself_are_not_negative(seed: int) -> None:
    """The parabola is below zero between the angles of the grid, by rounding errors at least."""
    points, weights = cloud(2, seed)
    turn = nearest_rotation(points, weights, points.flip(-1), weights)[0]
    _, squared = nearest_rotation(points, weights, points @ turn.mT, weights)
    assert squared >= 0
