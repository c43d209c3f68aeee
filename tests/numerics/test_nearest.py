"""Nearest rotations in the plane and in space, and rigid motions between corresponding points."""

import math

import numpy as np
import pytest
import torch
from cases import rand, randn
from scipy.spatial.transform import Rotation
from torch import Tensor

from gp_distributions.numerics.nearest import nearest_rotation, procrustes


def cloud(dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = randn(12, dim, seed=generator)
    weights = 0.5 + rand(12, seed=generator)
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


def drawn(dim: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(12, dim)), rng.normal(size=(12, dim)) + 2, rng.uniform(0.1, 1, 12)
    points, target, weights = map(torch.from_numpy, arrays)
    return [points, target, weights / weights.sum()]


def test_agrees_with_scipy_in_space() -> None:
    points, target, weights = drawn(3)
    centred = [x - weights @ x for x in (target, points)]
    arrays = [x.numpy() for x in (*centred, weights)]
    rotation, _ = Rotation.align_vectors(arrays[0], arrays[1], weights=arrays[2])
    expected = torch.from_numpy(rotation.apply(arrays[1])) + weights @ target
    torch.testing.assert_close(procrustes(points, target, weights), expected)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("center", [True, False])
def test_inverts_a_rigid_motion(dim: int, center: bool) -> None:
    points, _, weights = drawn(dim)
    angle = Rotation.from_rotvec([0.0, 0.0, 2.5]).as_matrix()[:dim, :dim]
    turned = points @ torch.from_numpy(angle.T.copy()) + (5 if center else 0)
    torch.testing.assert_close(procrustes(turned, points, weights, center=center), points)
    grown = procrustes(3 * turned, points, weights, center=center, scale=True)
    torch.testing.assert_close(grown, points)


def test_does_not_mirror() -> None:
    points, _, weights = drawn(2)
    mirrored = points * torch.tensor([-1.0, 1.0]).double()
    found = procrustes(mirrored, points, weights)
    assert float((found - points).abs().max()) > 0.5
    gaps = torch.pdist(found) - torch.pdist(mirrored)
    assert float(gaps.abs().max()) < 1e-12


def test_point_masses_move_to_the_mean() -> None:
    points, target, weights = drawn(3)
    found = procrustes(torch.ones_like(points), target, weights, scale=True)
    torch.testing.assert_close(found, (weights @ target).expand(12, 3))
