"""Results do not depend on the units of coordinates unless the user chooses a kernel."""

from collections.abc import Callable

import pytest
import torch
from cases import randn
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    PointClouds,
    PoolSearch,
    fit,
)
from gp_distributions.kernels import default_kernels
from gp_distributions.measures.inputs import Inputs

pytestmark = pytest.mark.usefixtures("short_fits")
UNITS = torch.tensor([1.0, 15_000.0, 2.0], dtype=torch.float64)
OFFSETS = torch.tensor([0.0, 40_000.0, 12.0], dtype=torch.float64)


def bags() -> tuple[PointClouds, Tensor]:
    """Bags of people, in standard units, whose education on average drives the target."""
    generator = torch.Generator().manual_seed(0)
    centres = randn(120, 1, 3, seed=generator)
    points = centres + randn(120, 12, 3, seed=generator)
    noise = randn(120, seed=generator)
    return PointClouds(points), torch.sin(centres[:, 0, 2]) + 0.1 * noise


def r2(predicted: Tensor, y: Tensor) -> float:
    return 1 - ((predicted - y).square().mean() / y.var(correction=0)).item()


def by_model(X: Inputs, y: Tensor, new: Inputs) -> Tensor:
    return fit(DistributionGP(X, y), restarts=0, progress=False).predict(new)[0]


def of_clouds(X: PointClouds) -> Inputs:
    return X


def of_mixed(X: PointClouds) -> Inputs:
    return MixedInputs(people=X)


def by_estimator(X: Inputs, y: Tensor, new: Inputs) -> Tensor:
    return torch.from_numpy(DistributionGPRegressor(restarts=0).fit(X, y).predict(new))


@pytest.mark.parametrize(("read", "predict"), [(of_mixed, by_model), (of_clouds, by_estimator)])
def test_predictions_do_not_depend_on_units(
    read: Callable[[PointClouds], Inputs], predict: Callable[[Inputs, Tensor, Inputs], Tensor]
) -> None:
    standard, y = bags()
    scores = []
    for X in (standard, PointClouds(OFFSETS + UNITS * standard.points)):
        scores.append(r2(predict(read(X[:60]), y[:60], read(X[60:])), y[60:]))
    assert scores[0] > 0.7
    assert scores[1] == pytest.approx(scores[0], abs=0.02)


def test_candidates_do_not_depend_on_units() -> None:
    standard, _ = bags()
    X = PointClouds(UNITS * standard.points)
    candidates = default_kernels(standard[:20])
    for name, kernel in default_kernels(X[:20]).items():
        if name.startswith("rigid"):
            continue  # coordinates that rotate have one unit
        torch.testing.assert_close(
            kernel(X[:20].pack()).to_dense(),
            candidates[name](standard[:20].pack()).to_dense(),
            rtol=1e-6,
            atol=1e-8,
        )


def test_searches_measure_coordinates_in_the_spread_of_the_pool() -> None:
    X, _ = bags()
    kernel = PoolSearch(X).default_kernel(torch.Size())
    spread = kernel.base_kernel.distance.spread
    torch.testing.assert_close(spread, X.normalize()._centre_and_scale(None)[1] * spread)
