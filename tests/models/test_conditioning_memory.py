"""Chains of ``condition_on_observations``: each model keeps only what its predictions need."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    MixtureModel,
    NormalizeClouds,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    integrate_hyperparameters,
)

CLOUDS = random_clouds(22, sizes=(3, 8))
TRAIN, MORE = as_rows(CLOUDS)[:12], as_rows(CLOUDS)[12:]
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])
OUTPUTS = torch.stack([TARGETS, TARGETS.sqrt()], dim=-1)


def kernel(**options: Any) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=6, num_quantiles=8, **options)


def exact(**options: Any) -> DistributionGP:
    return DistributionGP(TRAIN, TARGETS[:12], kernel(), **options)


def normalised() -> DistributionGP:
    return exact(input_transform=NormalizeClouds.from_data(PointClouds.unpack(TRAIN, 2)))


MODELS: dict[str, Callable[[], Any]] = {
    "exact": exact,
    "normalised": normalised,
    "sampling noise": lambda: exact(sampling_noise=True),
    "known noise": lambda: exact(train_Yvar=torch.full_like(TARGETS[:12], 0.1)),
    "outputs": lambda: DistributionGP(TRAIN, OUTPUTS[:12], kernel(batch_shape=torch.Size([2]))),
    "shared": lambda: SharedKernelGP(TRAIN, OUTPUTS[:12], kernel()),
    "mixture": lambda: MixtureModel([exact(), normalised()], [0.3, 0.7]),
    "integrated": lambda: integrate_hyperparameters(exact()),
}


def conditioned(model: Any, rows: Tensor, targets: Tensor) -> Any:
    fixed = any("FixedNoise" in type(part).__name__ for part in model.modules())
    options = {"noise": torch.full_like(targets, 0.1)} if fixed else {}
    return model.condition_on_observations(rows, targets, **options)


def caches(model: Any) -> list[Tensor]:
    """The factors and weights from which a model predicts."""
    if isinstance(model, MixtureModel):
        return [tensor for member in model.models for tensor in caches(member)]
    if isinstance(model, DistributionGP):
        strategy = model.prediction_strategy
        assert strategy is not None
        noisy = strategy.lik_train_train_covar
        return [
            strategy.covar_cache,
            strategy.mean_cache,
            noisy.root_decomposition().root.to_dense(),
        ]
    values = vars(model._regression).values()
    return [v for v in values if isinstance(v, Tensor) and v is not model.ratios]  # which all share


@pytest.mark.parametrize("name", MODELS)
def test_ancestors_are_forgotten(name: str) -> None:
    model = MODELS[name]()
    model.predict(MORE[:2])
    known: list[list[weakref.ref[Any]]] = []
    for step in range(4):
        known.append([weakref.ref(part) for part in (model, *caches(model))])
        every = OUTPUTS if model.num_outputs > 1 else TARGETS[:, None]
        model = conditioned(model, MORE[step : step + 1], every[12 + step : 13 + step])
        model.predict(MORE[:2])
    gc.collect()
    assert [part() for parts in known for part in parts if part() is not None] == []
    assert all(cache.grad_fn is None for cache in caches(model))


def test_gradients_of_new_clouds_and_targets_stay() -> None:
    """The knowledge gradient differentiates predictions of fantasies with respect to their clouds."""
    model = exact().eval()
    rows, targets = MORE[:2].clone().requires_grad_(), TARGETS[12:14].clone().requires_grad_()
    mean = model.condition_on_observations(rows, targets).posterior(MORE[4:6]).mean.sum()
    found = torch.autograd.grad(mean, (rows, targets))
    step = 1e-6
    for tensor, gradient in zip((rows, targets), found, strict=True):
        direction = torch.linspace(0.5, 1.5, tensor.numel()).double().reshape(tensor.shape)
        if tensor is rows:
            direction[:, 2::3] = 0  # weights stay
        ends = []
        for sign in (1, -1):
            moved = {id(rows): rows.detach(), id(targets): targets.detach()}
            moved[id(tensor)] = tensor.detach() + sign * step * direction
            more = model.condition_on_observations(moved[id(rows)], moved[id(targets)])
            ends.append(more.posterior(MORE[4:6]).mean.sum().item())
        expected = (ends[0] - ends[1]) / (2 * step)
        assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-5)
