"""The reference measure and its initialisers."""

import pytest
import torch

from gp_distributions import PointClouds, ReferenceMeasure

METHODS = ["kmeans", "sample", "mean_shape", "ball", "sphere", "grid", "low_discrepancy"]


def clouds(dim: int = 2) -> PointClouds:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(15, 30, dim, generator=generator, dtype=torch.float64)
    return PointClouds(5 + points)


def test_keeps_points_and_normalises_weights() -> None:
    points = torch.tensor([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]], dtype=torch.float64)
    reference = ReferenceMeasure(1e3 * points, [1, 2, 1])
    torch.testing.assert_close(reference.points, 1e3 * points)
    torch.testing.assert_close(reference.weights, torch.tensor([0.25, 0.5, 0.25]).double())
    assert (reference.size, reference.dim) == (3, 2)
    assert "3 atoms, d=2" in repr(reference)
    assert not any(p.requires_grad for p in reference.parameters())


def test_one_atom() -> None:
    reference = ReferenceMeasure([[2.0, 3.0]])
    torch.testing.assert_close(reference.points, torch.tensor([[2.0, 3.0]]).double())


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="positive weights, got 0 for atom 1"):
        ReferenceMeasure([[0.0], [1.0]], [1.0, 0.0])
    with pytest.raises(ValueError, match=r"shape \(m, d\)"):
        ReferenceMeasure(torch.zeros(2, 3, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="size >= 1"):
        ReferenceMeasure.from_data(clouds(), 0)
    with pytest.raises(ValueError, match="choose from kmeans"):
        ReferenceMeasure.from_data(clouds(), method="best")  # type: ignore[arg-type]


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_initialisers(method: str, dim: int) -> None:
    X = clouds(dim)
    one = ReferenceMeasure.from_data(X, 8, method=method, seed=3)  # type: ignore[arg-type]
    two = ReferenceMeasure.from_data(X, 8, method=method, seed=3)  # type: ignore[arg-type]
    assert torch.equal(one.points, two.points)
    assert one.points.dtype == torch.float64
    assert 1 <= one.size <= 8
    assert one.size == 8 or method in ("grid", "sphere", "kmeans")
    # Within reach of the data: at most one and a half times their spread beyond them.
    low, high = X.points.amin((0, 1)), X.points.amax((0, 1))
    margin = 1.5 * (high - low)
    assert bool(((one.points >= low - margin) & (one.points <= high + margin)).all())


def test_mean_shape_of_translates_is_their_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    angles = torch.arange(40, dtype=torch.float64) * (2 * torch.pi / 40)
    circle = torch.stack([angles.cos(), angles.sin()], dim=-1)
    shifts = torch.randn(10, 1, 2, generator=generator, dtype=torch.float64)
    found = ReferenceMeasure.from_data(PointClouds(circle + shifts), 20, method="mean_shape")
    about = found.points - shifts.mean(0)
    torch.testing.assert_close(about.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-6)
    # A circle, a little smaller for the entropic blur.
    assert bool(((about.norm(dim=-1) > 0.8) & (about.norm(dim=-1) < 1.05)).all())
