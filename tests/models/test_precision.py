"""Dtypes, gradients and layouts of the tensors that models accept."""

import pytest
import torch
from cases import MODELS, NEW_ROWS, random_rows

from gp_distributions import (
    DistributionGP,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    fit,
)

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
    given, converted = ROWS[20:].to(test), ROWS[20:].to(test).to(train)
    targets = torch.stack([TARGETS, TARGETS.square()], dim=-1)[20:]
    model = make_model(train, 2)
    for found, expected in zip(model.predict(given), model.predict(converted), strict=True):
        assert found.dtype == train
        torch.testing.assert_close(found, expected)
    assert model.posterior(given).mean.dtype == train
    more = model.condition_on_observations(given, targets.to(test))
    expected = model.condition_on_observations(converted, targets.to(test)).predict(ROWS[:3])[0]
    torch.testing.assert_close(more.predict(ROWS[:3])[0], expected)
    assert expected.dtype == train


@pytest.mark.parametrize("name", ["exact", "shared", "transformed", "sampling noise", "mixture"])
def test_a_model_that_has_predicted_changes_its_dtype(name: str) -> None:
    """What predictions have computed is not kept in the other dtype."""
    model = MODELS[name]()
    model.predict(NEW_ROWS)
    found = model.float().predict(NEW_ROWS)
    expected = MODELS[name]().float().predict(NEW_ROWS)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert found[0].dtype == torch.float32


def test_gradients_pass_the_conversion() -> None:
    rows = ROWS[20:].float().requires_grad_()
    (gradient,) = torch.autograd.grad(make_model().posterior(rows).mean.sum(), rows)
    assert float(gradient.abs().max()) > 0


def test_training_data_leave_their_graph() -> None:
    """Each step of a fit would go back through the same graph, which PyTorch does only once."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    points = torch.randn(20, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    train = PointClouds((scale * points).exp())
    targets = (scale * points).sum((-2, -1)).exp()
    kernel = SlicedWassersteinKernel(2, num_slices=8)
    model = fit(DistributionGP(train, targets, kernel, train_Yvar=targets / 10 + 0.1), restarts=0)
    assert not any(tensor.requires_grad for tensor in (*model.train_inputs, model.train_targets))
    rows = PointClouds(points.exp()).pack().requires_grad_()
    assert torch.autograd.grad(model.posterior(rows).mean.sum(), rows)[0].isfinite().all()
