"""Free shapes: atoms move, weights stay fixed, and bounds and penalty are respected."""

import warnings
from typing import Any

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.sampling import SobolQMCNormalSampler
from cases import with_known_level
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    FreeSearch,
    PointClouds,
    SlicedWasserstein,
    fit,
)
from gp_distributions.bayesopt import DataPenalty, optimize_free_shapes

BOUNDS = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)


def data(num: int = 12, seed: int = 0) -> PointClouds:
    """Ragged weighted clouds whose padding is mostly not at the origin."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(num, 6, 2, generator=generator, dtype=torch.float64) * 2 - 1
    weights = 0.1 + torch.rand(num, 6, generator=generator, dtype=torch.float64)
    weights[::2, 4:] = 0
    return PointClouds(points, weights)


def spread(clouds: PointClouds) -> torch.Tensor:
    """A target that increases with the variance along x."""
    weights = clouds.weights.unsqueeze(-1)
    mean = (weights * clouds.points).sum(-2, keepdim=True)
    return (weights * (clouds.points - mean).square()).sum(-2)[..., 0]


def distance() -> SlicedWasserstein:
    return SlicedWasserstein(2, num_slices=12, num_quantiles=12)


@pytest.fixture(scope="module")
def model() -> DistributionGP:
    clouds = data()
    kernel = ScaleKernel(DistributionKernel(distance(), "matern52"))
    return fit(with_known_level(DistributionGP(clouds, spread(clouds), kernel)))


def acquisition(model: DistributionGP) -> qLogExpectedImprovement:
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    return qLogExpectedImprovement(model, float(spread(data()).max()), sampler)


def optimize(model: DistributionGP, **options: Any) -> tuple[PointClouds, torch.Tensor]:
    arguments: dict[str, Any] = {"starts": data()[:4], "bounds": BOUNDS, "maxiter": 30}
    return optimize_free_shapes(acquisition(model), **arguments | options)


def test_improves_on_every_start_with_the_weights_of_one(model: DistributionGP) -> None:
    found, values = optimize(model)
    rows = data()[:4].pack().unsqueeze(-2)
    assert len(found) == 1
    assert float(values) > float(acquisition(model)(rows).detach().max())
    again = acquisition(model)(found.pack().unsqueeze(-2)).detach()
    torch.testing.assert_close(again, values)
    distances = (found.weights - data()[:4].weights).abs().amax(-1)
    assert float(distances.min()) < 1e-15
    assert float(spread(found)) > float(spread(data()).max())


def test_bounds(model: DistributionGP) -> None:
    narrow = torch.tensor([[-0.5, -0.2], [0.5, 0.7]], dtype=torch.float64)
    found, _ = optimize(model, bounds=narrow)
    points = found.points[found.weights > 0]
    assert bool(((narrow[0] <= points) & (points <= narrow[1])).all())


# A start may coincide with a pending cloud.
@pytest.mark.filterwarnings("ignore:A covariance matrix is not positive definite")
def test_several_are_different(model: DistributionGP) -> None:
    objective = acquisition(model)
    objective.set_X_pending(data()[[0]].pack())
    before = objective.X_pending
    found, values = optimize_free_shapes(objective, data()[:4], BOUNDS, 2, maxiter=20)
    assert values.shape == (2,)
    assert torch.equal(objective.X_pending, before)
    first, _ = optimize_free_shapes(objective, data()[:4], BOUNDS, maxiter=20)
    torch.testing.assert_close(found[0].points, first[0].points)
    assert float(distance().squared(found.pack())[0, 1]) > 1e-3


def test_penalty_keeps_clouds_near_the_data(model: DistributionGP) -> None:
    penalty = DataPenalty(distance(), data())
    free, _ = optimize(model)
    with warnings.catch_warnings(record=True):  # line searches may end at the kinks of the penalty
        kept, value = optimize(model, penalty=penalty, penalty_weight=100.0)
    far, near = (float(penalty(clouds.pack().unsqueeze(-2))) for clouds in (free, kept))
    assert near < 0.05 < far
    torch.testing.assert_close(
        acquisition(model)(kept.pack().unsqueeze(-2)).detach() - 100 * near,
        value,
        rtol=1e-6,
        atol=1e-6,
    )


def test_penalty_is_its_formula() -> None:
    clouds, others = data(), data(6, seed=1)
    squared = distance().squared(clouds.pack()) + torch.eye(12) * 1e9
    scale = sorted(squared.amin(-1).tolist())[5]
    cross = distance().squared(others.pack(), clouds.pack())
    expected = [max(0.0, min(row) / scale - 1) for row in cross.tolist()]
    penalty = DataPenalty(distance(), clouds)
    torch.testing.assert_close(
        penalty(others.pack().unsqueeze(-2)), torch.tensor(expected).double()
    )
    torch.testing.assert_close(
        penalty(others.pack().reshape(3, 2, -1)),
        torch.tensor(expected).double().view(3, 2).amax(-1),
    )
    assert float(penalty(clouds.pack().unsqueeze(-2)).max()) == 0.0


def test_errors(model: DistributionGP) -> None:
    with pytest.raises(ValueError, match="S >= 1 clouds"):
        optimize(model, starts=data()[0])
    normals = torch.nn.functional.normalize(data().points, dim=-1)
    facing = PointClouds(torch.cat([data().points, normals], -1), data().weights, num_normals=2)
    for made in (
        lambda: optimize(model, starts=facing),
        lambda: FreeSearch(facing, [[-1.0] * 4, [1.0] * 4]),
    ):
        with pytest.raises(ValueError, match="starts without normals"):
            made()
    with pytest.raises(ValueError, match="Remove duplicates"):
        DataPenalty(distance(), data()[[0, 0, 0, 1]])
