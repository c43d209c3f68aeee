"""Scales of coordinates and targets: models predict as at scale one, or say what overflows."""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from cases import random_clouds
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    Gaussians,
    Hellinger,
    MMDKernel,
    NormalizeClouds,
    PointClouds,
    PrecomputedDistance,
    SharedKernelGP,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.distances import Distance
from gp_distributions.models.scales import safe_range
from gp_distributions.warnings import PrecisionWarning

POINTS = torch.stack([points for points, _ in random_clouds(24, sizes=(6, 6))])
TARGETS = POINTS.square().sum((-2, -1))
SCALES = [10.0**power for power in (-300, -150, -140, 140, 150, 300)]
MESSAGE = (
    r"training clouds (over|under)flow in torch.float64 \(largest coordinate [\d.]+e.*normalize"
)

KERNELS: dict[str, Callable[[], DistributionKernel]] = {
    "sw2": lambda: SlicedWassersteinKernel(2, num_slices=8),
    "centred": lambda: SlicedWassersteinKernel(2, num_slices=8, center=True),
    "sw1": lambda: SlicedWassersteinKernel(2, num_slices=8, p=1),
    "linear": lambda: SlicedWassersteinKernel(2, num_slices=8, profile="linear"),
    "mmd": lambda: MMDKernel(2),
    "energy": lambda: MMDKernel(2, kernel="energy"),
}
# Distances are proportional to this power of the scale.
POWERS = {"sw1": 0.5, "energy": 0.5, "mmd": 0.0}

pytestmark = [
    pytest.mark.filterwarnings("ignore::gp_distributions.warnings.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning"),
]


def standardised(
    name: str, scale: float = 1.0, init: Literal["median", "current"] = "median"
) -> Tensor:
    """Predictions after a few steps of a fit, in standard deviations of the targets."""
    clouds, kernel = PointClouds(scale * POINTS), KERNELS[name]()
    model = DistributionGP(clouds[:16], TARGETS[:16], kernel)
    kernel.lengthscale = scale ** POWERS.get(name, 1.0)
    fit(model, init=init, restarts=0, options={"maxiter": 8})
    return torch.stack(model.predict(clouds[16:])) / TARGETS.std()


@pytest.mark.parametrize("init", ["median", "current"])
@pytest.mark.parametrize("name", KERNELS)
def test_clouds_of_any_scale(name: str, init: Literal["median", "current"]) -> None:
    expected = standardised(name, init=init)
    low, high = safe_range(torch.float64)
    for scale in SCALES:
        if low < scale < high:
            found = standardised(name, scale, init)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        else:
            with pytest.raises(ValueError, match=MESSAGE):
                standardised(name, scale, init)


@pytest.mark.parametrize("scale", [1e-170, 1e160])
def test_the_advice_helps(scale: float) -> None:
    clouds = PointClouds(scale * POINTS)
    transform = NormalizeClouds.from_data(clouds, scale=scale)
    for X, input_transform in ((clouds, transform), (clouds.normalize(scale=scale), None)):
        kernel = KERNELS["sw2"]()
        model = DistributionGP(X[:16], TARGETS[:16], kernel, input_transform=input_transform)
        fit(model, restarts=0, options={"maxiter": 8})
        found = torch.stack(model.predict(X[16:])) / TARGETS.std()
        torch.testing.assert_close(found, standardised("sw2"), rtol=0, atol=1e-6)


def test_distances_that_grow_faster_than_coordinates() -> None:
    model = DistributionGP(PointClouds(1e80 * POINTS), TARGETS, MMDKernel(2, kernel="polynomial2"))
    with pytest.raises(ValueError, match="training clouds overflow"):
        fit(model)


@pytest.mark.filterwarnings("ignore:All 3 training clouds coincide")
def test_coinciding_clouds_are_valid() -> None:
    """In another order, padded, or moved where the distance does not see it."""
    lattice = POINTS[:1].round()
    for points, kernel in (
        (torch.cat([lattice, lattice.flip(-2), lattice.roll(2, -2)]), KERNELS["sw2"]()),
        (lattice + torch.arange(3.0).reshape(-1, 1, 1), KERNELS["centred"]()),
    ):
        fit(DistributionGP(PointClouds(points), TARGETS[:3], kernel), restarts=0)


@pytest.mark.filterwarnings("ignore:All 6 training clouds coincide")
def test_labels_have_no_scale() -> None:
    labels = 1e200 * torch.arange(2.0, dtype=torch.float64).reshape(2, 1)
    weights = torch.linspace(0.1, 0.9, 12, dtype=torch.float64)
    clouds = PointClouds(labels.expand(12, 2, 1), torch.stack([weights, 1 - weights], -1))
    kernel = DistributionKernel(Hellinger(1))
    assert (
        float((fit(DistributionGP(clouds, weights, kernel)).predict(clouds)[0] - weights).std())
        < 0.1
    )
    indices = torch.arange(6, dtype=torch.float64).unsqueeze(-1)
    kernel = DistributionKernel(PrecomputedDistance(torch.zeros(6, 6, dtype=torch.float64)))
    fit(DistributionGP(indices, TARGETS[:6], kernel), restarts=0)


class Ranks(Distance):
    """A distance that reads the order of the coordinates alone."""

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        return points.squeeze(-1).argsort(-1).to(points)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_distances_say_whether_they_read_coordinates(scale: float) -> None:
    clouds = PointClouds(scale * POINTS[..., :1])
    distance = Ranks(1)
    with pytest.raises(ValueError, match=MESSAGE):
        DistributionGP(clouds, TARGETS, DistributionKernel(distance))
    distance.reads_coordinates = False
    DistributionGP(clouds, TARGETS, DistributionKernel(distance)).predict(clouds)


def test_gaussians() -> None:
    mean = POINTS[:, 0]
    eye = torch.eye(2, dtype=torch.float64).expand(24, 2, 2)
    for scale in (1e-100, 1e100):
        found = fit(DistributionGP(Gaussians(scale * mean, scale**2 * eye), TARGETS), restarts=0)
        assert bool(found.predict(Gaussians(scale * mean, scale**2 * eye))[1].isfinite().all())
    with pytest.raises(ValueError, match=r"clouds overflow .*X\.normalize\(scale=[1-9]e\+15\d\)"):
        DistributionGP(Gaussians(1e150 * mean, eye), TARGETS)


def test_single_precision_has_its_own_limits() -> None:
    expected = standardised("sw2")[0]
    for scale in (1e-20, 1e-18, 1e-10, 1e10, 1e18, 1e20):
        with pytest.warns(PrecisionWarning):
            clouds = PointClouds((scale * POINTS).float())
        if 1e-15 < scale < 1e15:
            model = DistributionGP(clouds[:16], TARGETS[:16], KERNELS["sw2"]())
            fit(model, restarts=0, options={"maxiter": 8})
            found = model.predict(clouds[16:])[0].double() / TARGETS.std()
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-2)
        else:
            with pytest.raises(ValueError, match=r"flow in torch\.float32"):
                DistributionGP(clouds, TARGETS)
    with pytest.warns(PrecisionWarning):
        clouds = PointClouds(POINTS.float())
    for unit in (1e-60, 1e-30, 1e30, 1e60):
        with pytest.raises(ValueError, match=r"targets (over|under)flow in torch\.float32"):
            DistributionGP(clouds, unit * TARGETS)


@pytest.mark.parametrize("model", [DistributionGP, SharedKernelGP])
@pytest.mark.parametrize("axis", [False, True])
def test_targets_of_any_scale(model: type[DistributionGP], axis: bool) -> None:
    clouds, targets = PointClouds(POINTS), TARGETS
    if axis:  # one output of many is enough
        targets = torch.stack([TARGETS, TARGETS.sin()], dim=-1)
    kernel = KERNELS["sw2"]()
    expected = torch.stack(model(clouds[:16], targets[:16], kernel).predict(clouds[16:]))
    low, high = safe_range(torch.float64)
    for scale in SCALES:
        unit = torch.ones_like(targets[0])
        unit[... if not axis else 1] = scale
        if 10 * low < scale < high / 1e3:
            found = model(clouds[:16], targets[:16] * unit, kernel).predict(clouds[16:])
            torch.testing.assert_close(torch.stack(found) / unit, expected, rtol=1e-6, atol=1e-6)
        else:
            with pytest.raises(
                ValueError, match=r"centred targets (over|under)flow in torch.float64"
            ):
                model(clouds[:16], targets[:16] * unit, kernel)


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e-170, 1e100])
def test_equal_targets_of_any_scale(value: float) -> None:
    clouds = PointClouds(POINTS)
    model = DistributionGP(clouds, torch.full((24,), value, dtype=torch.float64))
    mean, std = fit(model, restarts=0).predict(clouds)
    torch.testing.assert_close(mean, torch.full_like(mean, value), rtol=1e-12, atol=0)
    assert bool(std.isfinite().all())


def test_distances_are_checked_without_computing_them_again() -> None:
    kernel = KERNELS["sw2"]()
    model = DistributionGP(PointClouds(POINTS), TARGETS, kernel)
    calls: list[int] = []
    represent = kernel.distance.represent
    kernel.distance.represent = lambda points, weights: (  # type: ignore[method-assign]
        calls.append(len(points)),
        represent(points, weights),
    )[1]
    fit(model, init="current", restarts=0)
    assert calls == [24]
    assert isinstance(kernel.distance, SlicedWasserstein)
