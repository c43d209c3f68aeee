"""Predictions after a change of hyperparameters: those of a model that has not predicted before."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import MODELS, NEW_ROWS, NEW_TARGETS, small_kernel
from torch import Tensor

from gp_distributions import DistributionGP


def set_lengthscale(model: Any) -> None:
    model.members[0].covar_module.base_kernel.lengthscale = 0.3


def scale_noise(model: Any) -> None:
    noise = model.members[0].likelihood.noise_covar
    noise.noise = 3 * noise.noise.detach()


def replace_kernel(model: Any) -> None:
    model.members[0].covar_module = small_kernel(p=1).double()


def set_mean(model: Any) -> None:
    model.members[0].mean_module.raw_constant.data.fill_(2.0)


def predicted(model: Any) -> list[Tensor]:
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(NEW_ROWS), model.leave_one_out()]
    return [*model.predict(NEW_ROWS), *model.leave_one_out()]


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, set_lengthscale) for name in ("exact", "shared", "mixture", "sparse", "classes")]
    + [(name, scale_noise) for name in ("exact", "known noise", "shared", "mixture")]
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
        return model.condition_on_observations(NEW_ROWS[:2], NEW_TARGETS[:2], noise=noise)

    model, again = MODELS[name](), MODELS[name]()
    model.predict(NEW_ROWS)
    set_lengthscale(model)
    set_lengthscale(again)
    more = conditioned(model)
    updated = more.prediction_strategy
    torch.testing.assert_close(predicted(more), predicted(conditioned(again)))
    assert more.prediction_strategy is updated
    more.covar_module.base_kernel.lengthscale = 0.7
    again.covar_module.base_kernel.lengthscale = 0.7
    torch.testing.assert_close(predicted(more), predicted(conditioned(again)), rtol=1e-8, atol=1e-8)
