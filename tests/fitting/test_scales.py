"""Scales of coordinates are learned where that helps held-out predictions, and else left alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.models.kernels.categorical import CategoricalKernel
from cases import randn
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    MixedInputs,
    PointClouds,
    ScaledDistance,
    SharedKernelGP,
    SlicedWasserstein,
    fit,
    mixed_kernel,
)
from gp_distributions.fitting import scales

pytestmark = pytest.mark.usefixtures("short_fits")


def bags(num: int = 30, dim: int = 4, seed: int = 0) -> tuple[PointClouds, Tensor]:
    """Bags, and the means of their first coordinate."""
    generator = torch.Generator().manual_seed(seed)
    means = randn(num, 1, dim, seed=generator)
    noise = randn(num, 20, dim, seed=generator)
    return PointClouds(means + 0.5 * noise), (2 * means[:, 0, 0]).sin()


def kernel(dim: int = 4, **options: int) -> ScaleKernel:
    distance = SlicedWasserstein(dim, num_slices=15, num_quantiles=10)
    return ScaleKernel(DistributionKernel(ScaledDistance(distance, standardize=False)))


def scales_of(model: DistributionGP) -> Tensor:
    (found,) = (m.scales for m in model.modules() if isinstance(m, ScaledDistance))
    return found.detach()


def test_scales_that_a_fit_holds_fixed_are_learned_alike() -> None:
    X, y = bags(40)
    found = []
    for fixed in (False, True):
        model = DistributionGP(X, y, kernel())
        (distance,) = (m for m in model.modules() if isinstance(m, ScaledDistance))
        distance.raw_scales.requires_grad_(False)
        fit(model, restarts=0)
        distance.raw_scales.requires_grad_(not fixed)
        assert scales.learn_scales(model.train(), [distance])
        found.append(scales_of(model))
    assert torch.equal(*found)


def test_scales_stay_where_they_are_if_nothing_is_gained() -> None:
    X, _ = bags()
    y = randn(30, seed=3)
    model = fit(DistributionGP(X, y, kernel()))
    assert scales_of(model).tolist() == [1.0] * 4
    assert "scales kept as they were: for held-out targets" in repr(model)
    few = fit(DistributionGP(X[:5], y[:5], kernel()))
    assert scales_of(few).tolist() == [1.0] * 4
    assert "scales kept as they were: fewer than 10 bags" in repr(few)


def test_the_coordinate_of_a_rough_function_is_found_from_a_linear_model() -> None:
    X, _ = bags(60, 6)
    means = X.points.mean(1)
    model = DistributionGP(X, (3 * means[:, 0]).sin() + means[:, 1], kernel(6))
    model.covar_module.outputscale, model.covar_module.base_kernel.lengthscale = 1e4, 100.0
    distance = model.covar_module.base_kernel.distance
    assert scales.learn_scales(model.train(), [distance])
    assert distance.scales.argmax() == 0


def test_fixed_scales_stay() -> None:
    X, y = bags()
    fixed = kernel()
    fixed.base_kernel.distance.scales = [2.0, 1.0, 1.0, 1.0]
    fixed.base_kernel.distance.requires_grad_(False)
    before = fixed.base_kernel.distance.scales.clone()
    model = fit(DistributionGP(X, y, fixed))
    assert torch.equal(scales_of(model), before)
    assert not fixed.base_kernel.distance.raw_scales.requires_grad


MODELS: dict[str, Callable[[PointClouds, Tensor], Any]] = {
    "shared": lambda X, y: SharedKernelGP(X, torch.stack([y, -y.sin()], -1), kernel(3)),
    "classes": lambda X, y: ClassificationGP(X, (y > 0).long(), kernel(3)),
    "sampling noise": lambda X, y: DistributionGP(X, y, kernel(3), sampling_noise=True),
    "mixed": lambda X, y: mixed(X, y),
    "outputs": lambda X, y: DistributionGP(X, torch.stack([y] * 3, -1), of_outputs()),
}


def mixed(X: PointClouds, y: Tensor) -> DistributionGP:
    age = randn(len(y), seed=2)
    inputs = MixedInputs(cells=X, age=age)
    return DistributionGP(inputs, y + age, mixed_kernel(inputs, {"cells": kernel(3).base_kernel}))


def of_outputs() -> ScaleKernel:
    """A kernel of as many outputs as coordinates."""
    shape = torch.Size([3])
    single = DistributionKernel(kernel(3).base_kernel.distance, batch_shape=shape)
    return ScaleKernel(single, batch_shape=shape)


@pytest.mark.parametrize("name", MODELS)
def test_other_models(name: str) -> None:
    model = fit(MODELS[name](*bags(30, dim=3)), restarts=0)
    assert bool(scales_of(model)[0] > 3 * scales_of(model)[1:].max())
    assert name == "classes" or "scales learned: for held-out targets" in repr(model)


def test_fits_start_at_the_given_scales() -> None:
    X, y = bags()
    given = kernel(2)
    distance = given.base_kernel.distance
    distance.scales = [1.0, 1e-5]
    model = DistributionGP(PointClouds(X.points[..., :2]), y, given).train()
    ascent = scales._Ascent(model, [distance], torch.arange(30), 100, 0)
    ascent.climb(ascent.start, torch.ones(30, dtype=torch.bool), 0)
    # The optimiser may take a step, but the bounds of logarithms would add a factor of 90.
    assert ascent.distances[0].scales[1] < 1.5e-5


def test_lengthscales_that_overflow_stop_nothing() -> None:
    """A category that does not matter gets a lengthscale of any size."""
    X, y = bags(30, dim=3)
    inputs = MixedInputs(cells=X, arm=["a", "b"] * 15)
    model = DistributionGP(inputs, y, mixed_kernel(inputs, {"cells": kernel(3).base_kernel}))
    (distance,) = scales.learned_scales(model)
    (categorical,) = (m for m in model.modules() if isinstance(m, CategoricalKernel))
    with torch.no_grad():
        categorical.raw_lengthscale.fill_(900.0)
    assert scales.learn_scales(model.train(), [distance])
    assert distance.scales.argmax() == 0
    assert bool((distance.scales[0] > 3 * distance.scales[1:]).all())


def test_labels_are_judged_by_their_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scales, "_OTHERS", 0)
    X, y = bags()
    labels, kept = (y > 0).long(), torch.arange(30) % 5 != 0
    model = ClassificationGP(X, labels, kernel())
    part = ClassificationGP(X[kept], labels[kept], model.covar_module)
    found = part.predict_proba(X[~kept]).gather(-1, labels[~kept, None]).squeeze(-1)
    ascent = scales._Ascent(
        model.train(), scales.learned_scales(model), torch.arange(30).flip(0), 100, 0
    )
    held = kept[ascent.bags]
    densities, _ = ascent.held_out(ascent.start, held, [])
    order = ascent.bags[~held].argsort()
    torch.testing.assert_close(densities[order], found.log(), rtol=1e-6, atol=1e-9)
