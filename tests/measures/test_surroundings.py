"""Descriptions of the neighbourhoods of atoms."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from gp_distributions import PointClouds
from gp_distributions.measures import surroundings


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
