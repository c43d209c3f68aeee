"""Gradients after predictions in ``torch.inference_mode()``, whose tensors autograd cannot use."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds

from gp_distributions import (
    DistributionGP,
    MixtureModel,
    ReferenceMeasure,
    SharedKernelGP,
    SinkhornKernel,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    fit,
    fit_reference,
    integrate_hyperparameters,
)
from gp_distributions.fitting.ascent import values_of

pytestmark = pytest.mark.usefixtures("short_fits")

ROWS = as_rows(random_clouds(12, sizes=(3, 8)))
TARGETS = ROWS[:10, 0].sin()


def exact() -> DistributionGP:
    return DistributionGP(ROWS[:10], TARGETS, SlicedWassersteinKernel(2, num_slices=5))


def sparse() -> SparseDistributionGP:
    kernel = SlicedWassersteinKernel(2, num_slices=5)
    return SparseDistributionGP(ROWS[:10], TARGETS, kernel, num_inducing=5)


def shared() -> SharedKernelGP:
    outputs = torch.stack([TARGETS, TARGETS.square()], dim=-1)
    return SharedKernelGP(ROWS[:10], outputs, SlicedWassersteinKernel(2, num_slices=5))


MODELS: dict[str, Callable[[], Any]] = {
    "exact": exact,
    "sampling noise": lambda: DistributionGP(
        ROWS[:10], TARGETS, SlicedWassersteinKernel(2, num_slices=5), sampling_noise=True
    ),
    "shared kernel": shared,
    "sparse": sparse,
    "integrated": lambda: integrate_hyperparameters(exact()),
    "mixture": lambda: MixtureModel([exact(), integrate_hyperparameters(exact())]),
}


def gradient(model: Any) -> torch.Tensor:
    """Return the gradient of a posterior with respect to the clouds."""
    rows = ROWS[10:].clone().requires_grad_()
    posterior = model.posterior(rows, observation_noise=True)
    (found,) = torch.autograd.grad(posterior.mean.sum() + posterior.variance.sum(), rows)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_posteriors(name: str) -> None:
    model = MODELS[name]()
    with torch.inference_mode():
        model.predict(ROWS[10:])
        model.leave_one_out()
    assert torch.equal(gradient(model), gradient(MODELS[name]()))


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, torch.inference_mode) for name in ("exact", "shared kernel", "sparse")]
    + [("exact", torch.no_grad)],
)
def test_fits(name: str, mode: Callable[[], Any]) -> None:
    expected = values_of(fit(MODELS[name](), restarts=0))
    model = MODELS[name]()
    with mode():
        fit(model, restarts=0)
    assert all(map(torch.equal, values_of(model), expected))


def test_fit_of_a_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = ReferenceMeasure(torch.randn(3, 2, generator=generator, dtype=torch.float64))
    kernels = (SinkhornKernel(copy.deepcopy(reference)) for _ in range(2))
    models = [DistributionGP(ROWS[:10], TARGETS, kernel) for kernel in kernels]
    expected = fit_reference(models[0], steps=1, guard=None, progress=False)
    with torch.no_grad():
        found = fit_reference(models[1], steps=1, guard=None, progress=False)
    assert found.mll == expected.mll
