"""Scales of coordinates and targets: models predict as at scale one."""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from cases import random_clouds
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    Hellinger,
    MMDKernel,
    PointClouds,
    PrecomputedDistance,
    SharedKernelGP,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.warnings import UndeterminedWarning

POINTS = torch.stack([points for points, _ in random_clouds(24, sizes=(6, 6))])
TARGETS = POINTS.square().sum((-2, -1))
SCALES = [1e-12, 1e12]

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
    pytest.mark.usefixtures("short_fits"),
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


@pytest.mark.parametrize(
    ("name", "init"), [*((name, "median") for name in KERNELS), ("sw2", "current")]
)
def test_clouds_of_any_scale(name: str, init: Literal["median", "current"]) -> None:
    expected = standardised(name, init=init)
    for scale in SCALES:
        found = standardised(name, scale, init)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:All 6 training clouds coincide")
def test_labels_have_no_scale() -> None:
    labels = 1e200 * torch.arange(2.0, dtype=torch.float64).reshape(2, 1)
    weights = torch.linspace(0.1, 0.9, 12, dtype=torch.float64)
    clouds = PointClouds(labels.expand(12, 2, 1), torch.stack([weights, 1 - weights], -1))
    kernel = DistributionKernel(Hellinger(1))
    found = fit(DistributionGP(clouds, weights, kernel)).predict(clouds)[0]
    assert float((found - weights).std()) < 0.1
    indices = torch.arange(6, dtype=torch.float64).unsqueeze(-1)
    kernel = DistributionKernel(PrecomputedDistance(torch.zeros(6, 6, dtype=torch.float64)))
    fit(DistributionGP(indices, TARGETS[:6], kernel), restarts=0)


@pytest.mark.parametrize("model", [DistributionGP, SharedKernelGP])
@pytest.mark.parametrize("axis", [False, True])
def test_targets_of_any_scale(model: type[DistributionGP], axis: bool) -> None:
    clouds, targets = PointClouds(POINTS), TARGETS
    if axis:  # one output of many is enough
        targets = torch.stack([TARGETS, TARGETS.sin()], dim=-1)
    kernel = KERNELS["sw2"]()
    expected = torch.stack(model(clouds[:16], targets[:16], kernel).predict(clouds[16:]))
    for scale in SCALES:
        unit = torch.ones_like(targets[0])
        unit[... if not axis else 1] = scale
        found = model(clouds[:16], targets[:16] * unit, kernel).predict(clouds[16:])
        torch.testing.assert_close(torch.stack(found) / unit, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1e-12, 1e12])
def test_equal_targets_of_any_scale(value: float) -> None:
    clouds = PointClouds(POINTS)
    model = DistributionGP(clouds, torch.full((24,), value, dtype=torch.float64))
    with pytest.warns(UndeterminedWarning, match="All 24 targets are equal"):
        mean, std = fit(model, restarts=0).predict(clouds)
    assert model.choice is not None
    assert model.choice.members == "isotropic"
    torch.testing.assert_close(mean, torch.full_like(mean, value), rtol=1e-12, atol=0)
    assert bool(std.isfinite().all())
