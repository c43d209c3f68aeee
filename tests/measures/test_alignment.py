"""Aligned clouds: copies return to their pose, others to the best pose of a search over rotations."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from gp_distributions import PointClouds, SlicedWasserstein
from gp_distributions.measures import align
from gp_distributions.numerics.nearest import nearest_rotation


def clouds(num: int, dim: int, *, size: int = 25, seed: int = 0) -> PointClouds:
    """Ragged weighted clouds without symmetry."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(num, size, dim, generator=generator, dtype=torch.float64)
    points = normal * torch.linspace(1, 2, dim).double() + 0.4 * normal.square().flip(-1)
    weights = 0.5 + torch.rand(num, size, generator=generator, dtype=torch.float64)
    weights[1::2, -5:] = 0
    return PointClouds(points, weights)


def rotations(num: int, dim: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    if dim == 3:
        return torch.from_numpy(Rotation.random(num, rng).as_matrix())
    turns = Rotation.from_euler("z", rng.uniform(0, 2 * math.pi, (num, 1))).as_matrix()
    return torch.from_numpy(turns[:, :2, :2].copy())


def turned(given: PointClouds, seed: int = 0) -> PointClouds:
    shift = torch.arange(given.dim).double() + 3
    return PointClouds(
        given.points @ rotations(len(given), given.dim, seed).mT + shift, given.weights
    )


@pytest.mark.parametrize(("dim", "tolerance"), [(2, 1e-2), (3, 1e-3)])
def test_copies_return_to_their_pose(dim: int, tolerance: float) -> None:
    originals = clouds(5, dim)
    copies = turned(originals)
    for index in range(5):
        found = align(copies[[index]], originals[index])
        gaps = (found.points[0] - originals.points[index])[originals.weights[index] > 0]
        assert float(gaps.norm(dim=-1).max()) < tolerance
        assert torch.equal(found.weights[0], originals.weights[index])


@pytest.mark.parametrize("dim", [2, 3])
def test_no_other_rotation_is_closer(dim: int) -> None:
    given, template = clouds(2, dim), clouds(1, dim, seed=9)[0]
    found = align(given, template)
    distance = SlicedWasserstein(dim, num_slices=64, num_quantiles=64, center=True)
    reached = distance.squared(found.pack(), template.pack()[None]).squeeze(-1)
    trials = 300
    for index in range(2):
        copies = given.points[index] @ rotations(trials, dim, seed=index).mT
        rows = PointClouds(copies, given.weights[index].expand(trials, -1)).pack()
        best = float(distance.squared(rows, template.pack()[None]).min())
        assert float(reached[index]) < best * (1 + 1e-2)


@pytest.mark.parametrize("dim", [2, 3])
def test_squared_distance_is_that_of_sliced_wasserstein(dim: int) -> None:
    one, other = clouds(1, dim, seed=1), clouds(1, dim, seed=2)
    x, y = (c.points[0] - c.weights[0] @ c.points[0] for c in (one, other))
    rotation, squared = nearest_rotation(x, one.weights[0], y, other.weights[0])
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(dim).double())
    assert float(torch.linalg.det(rotation)) == pytest.approx(1)
    moved = PointClouds(x @ rotation.mT, one.weights[0]).pack()[None]
    distance = SlicedWasserstein(dim, num_slices=300, num_quantiles=64)
    expected = float(distance.squared(moved, PointClouds(y, other.weights[0]).pack()[None]))
    assert squared == pytest.approx(expected, rel=2e-2)


def test_first_cloud_is_the_template() -> None:
    given = turned(clouds(3, 2))
    found = align(given)
    torch.testing.assert_close(found.points[0], given.points[0], atol=2e-2, rtol=0)
    mean = given.weights[0] @ given.points[0]
    for index in range(3):
        torch.testing.assert_close(found.weights[index] @ found.points[index], mean)


@pytest.mark.parametrize("dim", [2, 3])
def test_mirror_images(dim: int) -> None:
    given = clouds(1, dim)
    sign = torch.ones(dim, dtype=torch.float64)
    sign[-1] = -1
    mirrored = turned(PointClouds(given.points * sign, given.weights))
    gaps = [
        float((align(mirrored, given, reflections=both).points - given.points).abs().max())
        for both in (True, False)
    ]
    assert gaps[0] < 2e-2
    assert gaps[1] > 0.3


def test_padding_order_and_splitting_do_not_matter() -> None:
    given, template = clouds(2, 2), clouds(1, 2, seed=4)[0]
    order = torch.randperm(25, generator=torch.Generator().manual_seed(0))
    points = torch.cat([given.points, given.points[:, :1], given.points[:, :3] + 50], dim=1)
    weights = torch.cat([given.weights, given.weights[:, :1], torch.zeros(2, 3).double()], dim=1)
    weights[:, 0] /= 2
    weights[:, 25] /= 2
    found = align(given, template).points
    torch.testing.assert_close(align(PointClouds(points, weights), template).points[:, :25], found)
    shuffled = PointClouds(given.points[:, order], given.weights[:, order])
    torch.testing.assert_close(align(shuffled, template).points, found[:, order])


def test_keeps_labels_shape_and_precision(device: torch.device) -> None:
    generator = np.random.default_rng(0)
    named = PointClouds.from_list({"a": generator.normal(size=(5, 3)), "b": np.ones((1, 3))})
    found = align(named.to(device).to(torch.float32))
    assert found.labels is not None
    assert found.labels.tolist() == ["a", "b"]
    assert found.dtype == torch.float32
    assert found.device == named.to(device).device
    batch = PointClouds(generator.normal(size=(2, 3, 6, 2)))
    assert align(batch).points.shape == batch.points.shape
    assert align(PointClouds(batch.points[0, 0])).batch_shape == ()


def test_refuses() -> None:
    for given, template in (
        (clouds(2, 2)[:0], None),
        (PointClouds(np.ones((2, 3, 4))), None),
        (clouds(2, 2), clouds(1, 3)[0]),
    ):
        with pytest.raises(
            ValueError, match=r"at least one cloud, .* in two or in three dimensions"
        ):
            align(given, template)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("reflections", [False, True])
def test_normals_turn_with_their_atoms(dim: int, reflections: bool) -> None:
    bare = clouds(4 - dim, dim)
    normals = torch.nn.functional.normalize(bare.points, dim=-1)
    shapes = PointClouds(torch.cat([bare.points, normals], -1), bare.weights, num_normals=dim)
    aligned = align(shapes, turned(bare[:1]), reflections=reflections)
    torch.testing.assert_close(
        aligned.positions, align(bare, turned(bare[:1]), reflections=reflections).points
    )
    assert aligned.num_normals == dim
    angles = [
        (each.positions.diff(dim=-2) * each.points[..., 1:, dim:]).sum(-1)
        for each in (shapes, aligned)
    ]
    torch.testing.assert_close(*angles)
