"""Clouds in unknown pose: surroundings that no motion changes, and alignment to a template."""

import math

import numpy as np
import pytest
import torch
from cases import rand, randn
from scipy.spatial.transform import Rotation
from torch import Tensor

from gp_distributions import PointClouds, SlicedWasserstein
from gp_distributions.measures import align, surroundings
from gp_distributions.numerics.nearest import nearest_rotation


def molecules(num: int = 4, seed: int = 0) -> PointClouds:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 8, num)
    return PointClouds.from_list(
        [2 * rng.normal(size=(n, 3)) for n in sizes],
        [rng.uniform(0.5, 2, n) for n in sizes],
        [rng.choice(["C", "H"], n) for n in sizes],
    )


def test_is_the_formula() -> None:
    """Against a loop over atoms, neighbours and pairs of neighbours, written from the formula."""
    X, radius = molecules(1), 4.0
    found = surroundings(X, radius, num_distances=3, num_angles=2).positions[0].numpy()
    points, masses = X.positions[0].numpy(), X.masses[0].numpy()
    assert X.kinds is not None
    kinds = [["C", "H"].index(kind) for kind in X.kinds[0]]
    pairs = [(0, 0), (0, 1), (1, 1)]
    for a, at in enumerate(points):
        expected = np.zeros((2, 3)), np.zeros((3, 2))
        lengths = np.linalg.norm(points - at, axis=1)
        for b, r in enumerate(lengths):
            if 0 < r < radius:
                cut = masses[b] * (1 + math.cos(math.pi * r / radius)) / 2
                for i, centre in enumerate(np.linspace(0.16 * radius, radius, 3)):
                    expected[0][kinds[b], i] += cut * math.exp(
                        -(((r - centre) * 25 / radius) ** 2) / 2
                    )
            for c in range(b):
                inner, s = 0.6 * radius, lengths[c]
                if 0 < r < inner and 0 < s < inner:
                    cosine = (points[b] - at) @ (points[c] - at) / (r * s)
                    cut = masses[b] * masses[c] * (1 + math.cos(math.pi * r / inner)) / 2
                    cut *= 0.7 * (1 + math.cos(math.pi * s / inner)) / 2
                    pair = pairs.index((min(kinds[b], kinds[c]), max(kinds[b], kinds[c])))
                    for j, centre in enumerate((-1.0, 1.0)):
                        height = math.exp(-(((cosine - centre) * 2 / 2.5) ** 2) / 2)
                        expected[1][pair, j] += cut * height
        np.testing.assert_allclose(
            found[a], np.concatenate([e.ravel() for e in expected]), atol=1e-13
        )


def test_motions_order_padding_and_division_change_nothing() -> None:
    X = molecules()
    before = surroundings(X)
    turn = torch.from_numpy(-Rotation.random(random_state=0).as_matrix())  # with a reflection
    order = torch.randperm(X.points.shape[1], generator=torch.Generator().manual_seed(0))
    moved = PointClouds((X.positions @ turn + 3)[:, order], X.masses[:, order], X.kinds[:, order])
    assert torch.allclose(surroundings(moved).points[:, order.argsort()], before.points, atol=1e-12)
    twice = PointClouds(
        torch.cat([X.positions, X.positions], 1),
        torch.cat([X.masses, 2 * X.masses], 1) / 3,
        np.concatenate([X.kinds, X.kinds], 1),
    )
    described = surroundings(twice)
    half = X.points.shape[1]
    used = X.weights > 0
    assert torch.allclose(described.points[:, :half][used], before.points[used], atol=1e-12)
    assert torch.allclose(described.mass, before.mass)


def test_keeps_what_is_known_of_clouds() -> None:
    X = molecules()
    found = surroundings(X, num_distances=4, num_angles=0)
    assert found.positions.shape[-1] == 8
    assert found.geometric
    assert (found.kind_names, found.kinds.tolist()) == (X.kind_names, X.kinds.tolist())  # type: ignore[union-attr]
    assert torch.equal(found.masses, X.masses)
    single = surroundings(X[0], num_distances=4, num_angles=0)
    assert torch.equal(single.points, found.points[0])


def test_gradients_at_coincident_atoms() -> None:
    points = torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(0)).double()
    points[:, 1] = points[:, 0]
    points.requires_grad_()

    def described(points: torch.Tensor) -> torch.Tensor:
        return surroundings(PointClouds(points), 3.0, num_distances=3, num_angles=3).points

    assert torch.autograd.grad(described(points).sum(), points)[0].isfinite().all()
    apart = torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(1)).double()
    assert torch.autograd.gradcheck(described, apart.requires_grad_())


def test_arguments() -> None:
    with pytest.raises(ValueError, match="Expected radius > 0"):
        surroundings(molecules(), 0.0)
    square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="Expected clouds without normals"):
        surroundings(PointClouds.from_curves([square], normals=True))


def clouds(num: int, dim: int, *, size: int = 25, seed: int = 0) -> PointClouds:
    """Ragged weighted clouds without symmetry."""
    generator = torch.Generator().manual_seed(seed)
    normal = randn(num, size, dim, seed=generator)
    points = normal * torch.linspace(1, 2, dim).double() + 0.4 * normal.square().flip(-1)
    weights = 0.5 + rand(num, size, seed=generator)
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
