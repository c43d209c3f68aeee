"""Sinkhorn potentials and linear transport as distances."""

from concurrent.futures import ThreadPoolExecutor

import ot
import pytest
import torch
from cases import as_rows, rand, randn, random_clouds, random_rows

from gp_distributions import LinearTransport, ReferenceMeasure, SinkhornPotential
from gp_distributions.warnings import ConvergenceWarning

ROWS = random_rows(10)


def reference(size: int = 5) -> ReferenceMeasure:
    return ReferenceMeasure(randn(size, 2, seed=1))


def test_default_epsilon_is_a_share_of_the_mean_squared_distance() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    distance = SinkhornPotential(ReferenceMeasure(points))
    assert float(distance.epsilon) == pytest.approx(0.05 * 25)
    # It is fixed at construction.
    with torch.no_grad():
        distance.reference.raw_points.mul_(2)
    assert float(distance.epsilon) == pytest.approx(0.05 * 25)


@pytest.mark.parametrize("kind", [SinkhornPotential, LinearTransport])
def test_arguments_are_checked(kind: type) -> None:
    with pytest.raises(TypeError, match="Expected a ReferenceMeasure, got Tensor"):
        kind(torch.zeros(3, 2))
    for epsilon in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="epsilon > 0"):
            kind(reference(), epsilon=epsilon)
    with pytest.raises(ValueError, match="All atoms of the reference coincide"):
        kind(ReferenceMeasure(torch.zeros(3, 2, dtype=torch.float64)))


def test_large_epsilon_leaves_the_mean() -> None:
    """Linear transport maps every atom to the mean; potentials are -2 <mean, u> up to constants."""
    measure = reference()
    clouds = random_clouds(10)
    means = torch.stack([weights @ points for points, weights in clouds])
    squared = torch.cdist(means, means).square()
    linear = LinearTransport(measure, epsilon=1e6).squared(as_rows(clouds))
    torch.testing.assert_close(linear, squared, rtol=1e-4, atol=1e-4)
    centred = measure.points - measure.weights @ measure.points
    covariance = centred.T @ (measure.weights.unsqueeze(-1) * centred)
    difference = means.unsqueeze(0) - means.unsqueeze(1)
    expected = 4 * torch.einsum("ijk,kl,ijl->ij", difference, covariance, difference)
    potential = SinkhornPotential(measure, epsilon=1e6).squared(as_rows(clouds))
    torch.testing.assert_close(potential, expected, rtol=1e-4, atol=1e-4)


def test_linear_transport_of_translates_is_the_translation() -> None:
    points, weights = random_clouds(1)[0]
    shift = torch.tensor([2.0, -1.0], dtype=torch.float64)
    rows = as_rows([(points, weights), (points + shift, weights)])
    squared = LinearTransport(reference(), epsilon=0.1).squared(rows)
    torch.testing.assert_close(squared[0, 1], shift.square().sum())


@pytest.mark.parametrize("kind", [SinkhornPotential, LinearTransport])
@pytest.mark.parametrize("tracked", [False, True])
def test_far_from_the_origin(kind: type, tracked: bool) -> None:
    """Coordinates there have 9 decimals left, and padding at the origin changes nothing."""
    far = 2.0**24
    clouds = [(points, weights) for points, weights in random_clouds(6, sizes=(3, 8))]
    moved = [(points + far, weights) for points, weights in clouds]
    near = kind(reference(), epsilon=0.5)
    distant = kind(ReferenceMeasure(reference().points.detach() + far), epsilon=0.5)
    expected = near.squared(as_rows(clouds))
    for atoms in (8, 20):
        rows = as_rows(moved, atoms=atoms).requires_grad_(tracked)
        torch.testing.assert_close(distant.squared(rows).detach(), expected, rtol=1e-6, atol=1e-6)


def test_threads_do_not_mix_their_outcomes() -> None:
    rows = [random_rows(8, seed=seed) for seed in range(4)]
    distance = SinkhornPotential(reference(), epsilon=0.5)
    expected = [distance.squared(r) for r in rows]
    with ThreadPoolExecutor(4) as pool:
        for found, r in zip(pool.map(distance.squared, rows * 8), expected * 8, strict=True):
            torch.testing.assert_close(found, r)


def test_starts_afresh_unless_an_optimiser_asks() -> None:
    learned = reference().requires_grad_()
    distance = SinkhornPotential(learned, epsilon=1e-3)
    cold = distance.squared(ROWS)
    assert torch.equal(distance.squared(ROWS), cold)
    distance.warm_starts = {}
    assert torch.equal(distance.squared(ROWS), cold)
    warm = distance.squared(ROWS)
    assert not torch.equal(warm, cold)  # another start ends elsewhere within the tolerance
    torch.testing.assert_close(warm, cold)
    distance.warm_starts = None
    assert torch.equal(distance.squared(ROWS), cold)


def test_names_the_clouds_whose_potentials_are_not_determined() -> None:
    points = rand(4, 6, 2)
    points[2] = points[2, :1]  # one atom, whose potentials are known in closed form
    rows = as_rows([(p, torch.full((6,), 1 / 6, dtype=torch.float64)) for p in points])
    square = ReferenceMeasure(torch.rand(3, 2, generator=torch.Generator().manual_seed(1)).double())
    with pytest.warns(
        ConvergenceWarning, match=r"3 of 4 clouds \(0, 1, 3\).*too small to determine"
    ):
        features = SinkhornPotential(square, epsilon=1e-6).embed(rows)
    assert bool(features.isfinite().all())


@pytest.mark.parametrize("kind", [SinkhornPotential, LinearTransport])
class TestPlan:
    def test_is_that_of_pot(self, kind: type[SinkhornPotential | LinearTransport]) -> None:
        measure = ReferenceMeasure(reference().points.detach(), torch.arange(1, 6))
        clouds = random_clouds(3, sizes=(2, 9))
        plans = kind(measure, epsilon=0.7).plan(as_rows(clouds, atoms=10))
        assert plans.shape == (3, 10, 5)
        assert not plans.requires_grad
        masses = measure.weights.detach()
        for plan, (points, weights) in zip(plans, clouds, strict=True):
            cost = torch.cdist(points, measure.points.detach()).square()
            options = {"method": "sinkhorn_log", "stopThr": 1e-13, "numItermax": 100_000}
            expected = ot.sinkhorn(weights, masses, cost, 0.7, **options)
            # Marginals have errors of 1e-10 here, and those of POT are smaller.
            torch.testing.assert_close(plan[: len(points)], expected, rtol=0, atol=1e-9)
            assert not plan[len(points) :].any()
            torch.testing.assert_close(plan.sum(0), masses, rtol=0, atol=1e-9)

    def test_of_batches_and_chunks(self, kind: type[SinkhornPotential | LinearTransport]) -> None:
        distance = kind(reference(), epsilon=0.5)
        expected = distance.plan(ROWS)
        distance.chunk_elements = 1  # a chunk for each cloud
        torch.testing.assert_close(distance.plan(ROWS), expected, rtol=1e-8, atol=1e-9)
        batches = distance.plan(ROWS.unflatten(0, (2, 5)))
        torch.testing.assert_close(batches.flatten(0, 1), expected, rtol=1e-8, atol=1e-9)


def test_linear_transport_is_the_mean_of_the_plan() -> None:
    distance = LinearTransport(reference(), epsilon=0.5)
    points = ROWS.unflatten(-1, (-1, 3))[..., :2]
    masses = distance.reference.weights.detach()
    images = distance.plan(ROWS).mT @ points / masses.unsqueeze(-1)
    expected = distance.embed(ROWS).unflatten(-1, (-1, 2)) / masses.sqrt().unsqueeze(-1)
    torch.testing.assert_close(images, expected.detach())
