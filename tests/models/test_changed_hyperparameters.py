"""Predictions after a change of hyperparameters: those of a model that has not predicted before."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import random_rows
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MixtureModel,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
)

ROWS = random_rows(14, sizes=(3, 6))
TARGETS = ROWS.sin().sum(-1)
TRAIN, NEW = ROWS[:10], ROWS[10:]


def kernel() -> ScaleKernel:
    return ScaleKernel(SlicedWassersteinKernel(2, num_slices=4))


def outputs() -> Tensor:
    return torch.stack([TARGETS, TARGETS.square()], dim=-1)[:10]


MODELS: dict[str, Callable[[], Any]] = {
    "exact": lambda: DistributionGP(TRAIN, TARGETS[:10], kernel()),
    "known noise": lambda: DistributionGP(
        TRAIN, TARGETS[:10], kernel(), train_Yvar=0.1 + TARGETS[:10].square()
    ),
    "outputs": lambda: SharedKernelGP(TRAIN, outputs(), kernel()),
    "mixture": lambda: MixtureModel([DistributionGP(TRAIN, TARGETS[:10], kernel())]),
    "sparse": lambda: SparseDistributionGP(TRAIN, TARGETS[:10], kernel(), num_inducing=10),
    "classes": lambda: ClassificationGP(TRAIN, ["a", "b"] * 5, kernel()),
}


def part(model: Any) -> Any:
    return model.models[0] if isinstance(model, MixtureModel) else model


def set_lengthscale(model: Any) -> None:
    part(model).covar_module.base_kernel.lengthscale = 0.3


def scale_noise(model: Any) -> None:
    noise = part(model).likelihood.noise_covar
    noise.noise = 3 * noise.noise.detach()


def replace_kernel(model: Any) -> None:
    part(model).covar_module = ScaleKernel(SlicedWassersteinKernel(2, p=1, num_slices=4)).double()


def set_mean(model: Any) -> None:
    part(model).mean_module.raw_constant.data.fill_(2.0)


def predicted(model: Any) -> list[Tensor]:
    return [model.predict_proba(NEW)] if hasattr(model, "predict_proba") else [*model.predict(NEW)]


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, set_lengthscale) for name in MODELS]
    + [(name, scale_noise) for name in ("exact", "known noise", "outputs", "mixture")]
    + [("exact", replace_kernel), ("exact", set_mean)],
)
def test_predictions_are_those_of_the_new_values(name: str, change: Callable[[Any], None]) -> None:
    model = MODELS[name]()
    before = predicted(model)
    change(model)
    again = MODELS[name]()
    change(again)
    found = predicted(model)
    assert all(map(torch.equal, found, predicted(again)))
    assert not torch.equal(found[0], before[0])


@pytest.mark.parametrize("name", ["exact", "known noise"])
def test_conditioned_models(name: str) -> None:
    """Their caches are updates of those of the model: of its new hyperparameters, and with their own."""
    noise = torch.full((2, 1), 0.5).double() if name == "known noise" else None

    def conditioned(model: DistributionGP) -> Any:
        return model.condition_on_observations(NEW[:2], TARGETS[10:12], noise=noise)

    model, again = MODELS[name](), MODELS[name]()
    model.predict(NEW)
    set_lengthscale(model)
    set_lengthscale(again)
    more = conditioned(model)
    updated = more.prediction_strategy
    for found, expected in zip(predicted(more), predicted(conditioned(again)), strict=True):
        torch.testing.assert_close(found, expected)
    assert more.prediction_strategy is updated
    more.covar_module.base_kernel.lengthscale = 0.7
    again.covar_module.base_kernel.lengthscale = 0.7
    for found, expected in zip(predicted(more), predicted(conditioned(again)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
