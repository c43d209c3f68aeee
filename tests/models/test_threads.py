"""Predictions in several threads: equal to those of one thread, without side effects."""

from collections.abc import Callable

import pytest
import torch
from cases import as_rows, random_clouds
from library_settings import settings
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MMDKernel,
    NormalizeClouds,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
)

CLOUDS = random_clouds(60, sizes=(3, 12))
NARROW, WIDE = as_rows(CLOUDS[:40]), as_rows(random_clouds(5, seed=1, sizes=(20, 30)))
TARGETS = torch.stack([points.square().sum() for points, _ in CLOUDS])
OUTPUTS = torch.stack([TARGETS, TARGETS.sqrt()], dim=-1)


def kernel() -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=8, num_quantiles=10, profile="matern52")


def normalised() -> DistributionGP:
    transform = NormalizeClouds.from_data(PointClouds.unpack(NARROW[:30], 2))
    return DistributionGP(NARROW[:30], TARGETS[:30], kernel(), input_transform=transform)


MODELS: dict[str, Callable[[], DistributionGP]] = {
    "plain": lambda: DistributionGP(NARROW[:30], TARGETS[:30], kernel()),
    "small units": lambda: DistributionGP(NARROW[:30], 1e-6 * TARGETS[:30], kernel()),
    "sampling noise": lambda: DistributionGP(
        NARROW[:30], TARGETS[:30], kernel(), sampling_noise=True
    ),
    "sum": lambda: DistributionGP(
        NARROW[:30], TARGETS[:30], kernel() + MMDKernel(2, bandwidth=1.0)
    ),
    "normalised": normalised,
    "outputs": lambda: DistributionGP(
        *(NARROW[:30], OUTPUTS[:30]),
        SlicedWassersteinKernel(2, num_slices=8, batch_shape=torch.Size([2])),
    ),
    "shared": lambda: SharedKernelGP(NARROW[:30], OUTPUTS[:30], kernel()),
    "classes": lambda: ClassificationGP(NARROW[:30], (TARGETS[:30] > 5).long(), kernel()),
}


def predict(model: DistributionGP, rows: Tensor) -> tuple[Tensor, ...]:
    if isinstance(model, ClassificationGP):
        return (model.predict_proba(rows),)
    return model.predict(rows)


def state_of(model: DistributionGP) -> list[Tensor]:
    return [t.detach().clone() for t in (*model.state_dict().values(), *model.train_inputs)]


@pytest.mark.parametrize("name", MODELS)
def test_predictions_change_nothing(name: str) -> None:
    """One wide cloud would widen the training rows for good."""
    model = MODELS[name]().eval()
    before, known = state_of(model), settings()
    strategy_free = set(vars(model)) | {"prediction_strategy"}
    for rows in (WIDE, NARROW[30:], WIDE[:1]):
        predict(model, rows)
    after = state_of(model)
    assert all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert set(vars(model)) <= strategy_free
    assert settings() == known


@pytest.mark.parametrize("name", MODELS)
def test_a_wide_cloud_is_predicted_as_if_it_were_padded(name: str) -> None:
    model = MODELS[name]()
    narrow = NARROW[30:]
    padded = torch.nn.functional.pad(narrow, (0, WIDE.shape[-1] - narrow.shape[-1]))
    for found, expected in zip(predict(model, padded), predict(model, narrow), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
