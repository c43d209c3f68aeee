"""Dtypes, gradients and layouts of the tensors that models accept."""

from typing import Any

import pytest
import torch
from cases import random_rows
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MixtureModel,
    NormalizeClouds,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.warnings import silenced

pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch.exceptions.warnings.InputDataWarning",
    "ignore:Sparse CSR tensor support is in beta",
    "ignore:The PyTorch API of nested tensors",
)

ROWS = random_rows(30, sizes=(4, 9))
TARGETS = ROWS.sin().sum(-1)


def make_model(
    dtype: torch.dtype = torch.float64, outputs: int = 1, **options: object
) -> DistributionGP:
    targets = torch.stack([TARGETS, TARGETS.square()], dim=-1)[:20, :outputs]
    kernel = SlicedWassersteinKernel(2, num_slices=8)
    return SharedKernelGP(ROWS[:20].to(dtype), targets, kernel, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("train", [torch.float32, torch.float64])
@pytest.mark.parametrize("test", [torch.float16, torch.float32, torch.float64])
def test_clouds_take_the_dtype_of_the_model(train: torch.dtype, test: torch.dtype) -> None:
    outputs = 2
    given, converted = ROWS[20:].to(test), ROWS[20:].to(test).to(train)
    targets = torch.stack([TARGETS, TARGETS.square()], dim=-1)[20:, :outputs]
    model = make_model(train, outputs)
    for found, expected in zip(model.predict(given), model.predict(converted), strict=True):
        assert found.dtype == train
        torch.testing.assert_close(found, expected)
    assert model.posterior(given).mean.dtype == train
    more = model.condition_on_observations(given, targets.to(test))
    expected = model.condition_on_observations(converted, targets.to(test)).predict(ROWS[:3])[0]
    torch.testing.assert_close(more.predict(ROWS[:3])[0], expected)
    assert expected.dtype == train


def test_clouds_take_the_dtype_of_models_of_other_kinds() -> None:
    with silenced():
        clouds = PointClouds.unpack(ROWS, 2)
        single = clouds.to(torch.float32)
        models = [
            ClassificationGP(single[:20], (TARGETS[:20] > 0).long()),
            DistributionGP(
                *(single[:20], TARGETS[:20]), input_transform=NormalizeClouds.from_data(single)
            ),
        ]
        assert models[0].predict_proba(clouds[20:]).dtype == torch.float32
        assert models[1].predict(clouds[20:])[0].dtype == torch.float32
        assert make_model().float().predict(clouds[20:])[0].dtype == torch.float32


def normalised() -> DistributionGP:
    transform = NormalizeClouds.from_data(PointClouds.unpack(ROWS[:20], 2))
    return make_model(input_transform=transform)


@pytest.mark.parametrize("cast", [torch.nn.Module.float, lambda m: m.to(torch.float32)])
@pytest.mark.parametrize(
    "make",
    [
        make_model,
        lambda: make_model(outputs=2),
        normalised,
        lambda: DistributionGP(PointClouds.unpack(ROWS[:20], 2), TARGETS[:20], sampling_noise=True),
        lambda: MixtureModel([make_model(), normalised()]),
    ],
)
def test_a_model_that_has_predicted_changes_its_dtype(make: Any, cast: Any) -> None:
    """What predictions have computed is not kept in the other dtype."""
    model = make()
    model.predict(ROWS[20:])
    found = cast(model).predict(ROWS[20:])
    expected = cast(make()).predict(ROWS[20:])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert found[0].dtype == torch.float32


def test_gradients_pass_the_conversion() -> None:
    rows = ROWS[20:].float().requires_grad_()
    (gradient,) = torch.autograd.grad(make_model().posterior(rows).mean.sum(), rows)
    assert float(gradient.abs().max()) > 0


@pytest.mark.parametrize("init", ["rows", "clouds"])
def test_training_data_leave_their_graph(init: str) -> None:
    """Each step of a fit would go back through the same graph, which PyTorch does only once."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    points = torch.randn(20, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    train: Tensor | PointClouds = PointClouds((scale * points).exp())
    train = train.pack() if init == "rows" else train
    targets = (scale * points).sum((-2, -1)).exp()
    kernel = SlicedWassersteinKernel(2, num_slices=8)
    model = fit(DistributionGP(train, targets, kernel, train_Yvar=targets / 10 + 0.1), restarts=0)
    assert not any(tensor.requires_grad for tensor in (*model.train_inputs, model.train_targets))
    rows = PointClouds(points.exp()).pack().requires_grad_()
    assert torch.autograd.grad(model.posterior(rows).mean.sum(), rows)[0].isfinite().all()
