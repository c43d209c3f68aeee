"""Random solids: their kinds, centres and rotations, and targets that pose does not change."""

import numpy as np

from benchmarks.data.solids import random_solids


def test_turned_copies_are_the_same_solids() -> None:
    solids = random_solids(12, num_points=80, seed=3)
    assert solids.kinds == ("ellipsoid", "box", "torus", "dumb-bell") * 3
    assert solids.points.shape == solids.turned.shape == (12, 80, 3)
    assert np.abs(solids.points.mean(1)).max() < 1e-12
    before, after = (
        np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
        for points in (solids.points, solids.turned)
    )
    np.testing.assert_allclose(after, before, atol=1e-12)
    # Rotations keep the orientation, which volumes with a sign show.
    before, after = (np.linalg.det(points[:, :3]) for points in (solids.points, solids.turned))
    np.testing.assert_allclose(after, before, rtol=1e-9)
    assert np.abs(solids.turned - solids.points).max() > 0.5


def test_targets_are_those_of_the_docstring() -> None:
    solids = random_solids(8, num_points=60)
    for points, target in zip(solids.turned, solids.targets, strict=True):
        third, second, first = np.sqrt(np.linalg.eigvalsh(points.T @ points / 60))
        squares = (points**2).sum(1)
        kurtosis = (squares**2).mean() / squares.mean() ** 2
        expected = np.log(first / second) + np.log(second / third) / 2 + kurtosis
        np.testing.assert_allclose(target, expected, rtol=1e-9)


def test_seeds_make_draws() -> None:
    one, same, other = (random_solids(4, num_points=10, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one.turned, same.turned)
    assert not np.array_equal(one.points, other.points)
