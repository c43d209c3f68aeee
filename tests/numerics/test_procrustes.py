"""Rigid motions between corresponding points, against SciPy and against perturbed motions."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from gp_distributions.numerics.rotations import procrustes


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
