"""Gradients after predictions in ``torch.inference_mode()``, whose tensors autograd cannot use."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import MODELS, NEW_ROWS, NEW_TARGETS, randn

from gp_distributions import (
    DistributionGP,
    PointClouds,
    PoolSearch,
    RecipeSearch,
    ReferenceMeasure,
    ShapeOptimizer,
    SinkhornKernel,
    fit,
    fit_reference,
)
from gp_distributions.fitting.ascent import values_of

pytestmark = pytest.mark.usefixtures("short_fits")


def gradient(model: Any) -> torch.Tensor:
    """Return the gradient of a posterior with respect to the clouds."""
    rows = NEW_ROWS[:2].clone().requires_grad_()
    posterior = model.posterior(rows, observation_noise=True)
    (found,) = torch.autograd.grad(posterior.mean.sum() + posterior.variance.sum(), rows)
    return found


@pytest.mark.parametrize(
    "name", ["exact", "sampling noise", "shared", "sparse", "integrated", "mixture"]
)
def test_gradients_of_posteriors(name: str) -> None:
    model = MODELS[name]()
    with torch.inference_mode():
        model.predict(NEW_ROWS[:2])
        model.leave_one_out()
    assert torch.equal(gradient(model), gradient(MODELS[name]()))


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, torch.inference_mode) for name in ("exact", "shared", "sparse")]
    + [("exact", torch.no_grad)],
)
def test_fits(name: str, mode: Callable[[], Any]) -> None:
    expected = values_of(fit(MODELS[name](), restarts=0))
    model = MODELS[name]()
    with mode():
        fit(model, restarts=0)
    assert all(map(torch.equal, values_of(model), expected))


def test_fit_of_a_reference() -> None:
    reference = ReferenceMeasure(randn(3, 2))
    kernels = (SinkhornKernel(copy.deepcopy(reference)) for _ in range(2))
    models = [DistributionGP(NEW_ROWS, NEW_TARGETS, kernel) for kernel in kernels]
    expected = fit_reference(models[0], steps=1, guard=None, progress=False)
    with torch.no_grad():
        found = fit_reference(models[1], steps=1, guard=None, progress=False)
    assert found.mll == expected.mll


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", ["pool", "recipes"])
def test_searches(kind: str, mode: Callable[[], Any]) -> None:
    found = []
    for within in (torch.enable_grad, mode):
        with within():
            search: Any = PoolSearch(PointClouds.unpack(NEW_ROWS, 2))
            if kind == "recipes":
                search = RecipeSearch(torch.eye(3), num_restarts=1, raw_samples=4)
            optimizer = ShapeOptimizer(search, initial=3, restarts=0)
            for outcome in (0.0, 2.0, 1.0):
                optimizer.tell(optimizer.ask()[0], outcome)
            found.append(optimizer.ask())
    assert found[0] == found[1]
