"""Reference measures and the methods that make them from data."""

import warnings

import numpy as np
import pytest
import torch
from cases import rand, randn
from scipy.cluster.vq import kmeans2

from gp_distributions import PointClouds, ReferenceMeasure
from gp_distributions.warnings import ReferenceWarning

METHODS = ["kmeans", "sample", "mean_shape", "ball", "sphere", "grid", "low_discrepancy"]


def clouds(dim: int = 2) -> PointClouds:
    points = randn(15, 30, dim)
    return PointClouds(5 + points)


def test_keeps_points() -> None:
    points = torch.tensor([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]], dtype=torch.float64)
    reference = ReferenceMeasure(1e3 * points, [1, 2, 1])
    torch.testing.assert_close(reference.points, 1e3 * points)
    assert not any(p.requires_grad for p in reference.parameters())


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"positive weights, got .* weights"):
        ReferenceMeasure([[0.0], [1.0]], [1.0, 0.0])
    with pytest.raises(ValueError, match=r"shape \(m, d\)"):
        ReferenceMeasure(torch.zeros(2, 3, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="size: expected an integer >= 1, got 0"):
        ReferenceMeasure.from_data(clouds(), 0)
    with pytest.raises(ValueError, match="choose from kmeans"):
        ReferenceMeasure.from_data(clouds(), method="best")  # type: ignore[arg-type]


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_methods(method: str, dim: int) -> None:
    X = clouds(dim)
    batch = PointClouds(X.points.unflatten(0, (3, 5)))
    one = ReferenceMeasure.from_data(X, 8, method=method, seed=3)  # type: ignore[arg-type]
    two = ReferenceMeasure.from_data(batch, 8, method=method, seed=3)  # type: ignore[arg-type]
    assert torch.equal(one.points, two.points)
    single = ReferenceMeasure.from_data(X[0], 8, method=method)  # type: ignore[arg-type]
    assert single.points.isfinite().all()
    assert one.points.dtype == torch.float64
    assert 1 <= one.size <= 8
    assert one.size == 8 or method in ("grid", "sphere", "kmeans")
    # At most one and a half times the range of the data beyond them.
    low, high = X.points.amin((0, 1)), X.points.amax((0, 1))
    margin = 1.5 * (high - low)
    assert bool(((one.points >= low - margin) & (one.points <= high + margin)).all())


def test_mean_shape_of_translates_is_their_mean() -> None:
    angles = torch.arange(40, dtype=torch.float64) * (2 * torch.pi / 40)
    circle = torch.stack([angles.cos(), angles.sin()], dim=-1)
    shifts = randn(10, 1, 2)
    found = ReferenceMeasure.from_data(PointClouds(circle + shifts), 20, method="mean_shape")
    about = found.points - shifts.mean(0)
    torch.testing.assert_close(about.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-6)
    # A circle, slightly smaller because of the entropic blur.
    assert bool(((about.norm(dim=-1) > 0.8) & (about.norm(dim=-1) < 1.05)).all())


@pytest.mark.parametrize("size", [1, 4])
def test_mean_shape_of_point_masses_is_their_mean(size: int) -> None:
    points = randn(7, 1, 2)
    found = ReferenceMeasure.from_data(PointClouds(points), size, method="mean_shape")
    torch.testing.assert_close(found.points, points.mean(0).expand(size, 2))
    if size == 1:
        spread = PointClouds(points + torch.arange(3.0).double()[:, None])
        found = ReferenceMeasure.from_data(spread, size, method="mean_shape")
        torch.testing.assert_close(found.points, points.mean(0) + 1)


def test_kmeans_agrees_with_scipy_without_its_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far from the origin in many dimensions, rounding leaves some clusters empty.
    X = PointClouds(1e7 + rand(4, 15, 8))
    rng = np.random.default_rng(3)
    weights = X.weights.flatten().numpy()
    pooled = X.points.flatten(0, 1)[rng.choice(60, size=10_000, p=weights / weights.sum())].numpy()
    with pytest.warns(UserWarning, match="One of the clusters is empty"):
        centres, nearest = kmeans2(pooled, 30, iter=30, minit="++", rng=rng)
    mass = np.bincount(nearest, minlength=30)

    def make() -> ReferenceMeasure:
        with monkeypatch.context() as patch:
            patch.setattr(warnings, "catch_warnings", None)  # process-wide state
            return ReferenceMeasure.from_data(X, 30, seed=3)

    with pytest.warns(ReferenceWarning, match="Expected 30 clusters") as record:
        found = make()
    assert len(record) == 1
    assert record[0].filename == __file__
    assert found.size == (mass > 0).sum() < 30
    np.testing.assert_allclose(found.points, centres[mass > 0], rtol=1e-15)
    np.testing.assert_allclose(found.weights, mass[mass > 0] / 10_000, rtol=1e-14)


def test_too_few_distinct_atoms_raise_a_warning() -> None:
    clouds = PointClouds(torch.arange(12.0, dtype=torch.float64).reshape(2, 3, 2))
    with pytest.warns(ReferenceWarning, match="Expected 20 clusters of atoms, found 6"):
        reference = ReferenceMeasure.from_data(clouds)
    assert reference.size == 6
    torch.testing.assert_close(
        reference.points.sort(0).values, torch.arange(12.0, dtype=torch.float64).reshape(6, 2)
    )
