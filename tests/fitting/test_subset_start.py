"""Fits of many clouds start on a subset, end where other fits end, and can be interrupted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import randn, random_clouds
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    fit,
)
from gp_distributions.fitting import ascent, stages
from gp_distributions.fitting.ascent import Ascent
from gp_distributions.warnings import CostWarning

CLOUDS = PointClouds.from_list([points for points, _ in random_clouds(90, sizes=(5, 20))])
ROWS = CLOUDS.pack()
NOISE = 0.1 * randn(90)
TARGETS = (CLOUDS.weights.unsqueeze(-1) * CLOUDS.points).sum((-2, -1)).sin() + NOISE
OUTPUTS = torch.stack([TARGETS, CLOUDS.points.square().sum((-2, -1)).sqrt()], dim=-1)


def kernel(**options: Any) -> SlicedWassersteinKernel:
    return SlicedWassersteinKernel(2, num_slices=10, num_quantiles=20, **options)


def beside_a_column() -> DistributionGP:
    width = ROWS.shape[-1]
    rows = torch.cat([ROWS, NOISE.unsqueeze(-1)], dim=-1)
    parts = kernel(active_dims=range(width)), RBFKernel(active_dims=[width])
    return DistributionGP(rows, TARGETS, ScaleKernel(parts[0]) + ScaleKernel(parts[1]))


MODELS: dict[str, Callable[[], DistributionGP]] = {
    "one output": lambda: DistributionGP(ROWS, TARGETS, ScaleKernel(kernel())),
    "two outputs": lambda: DistributionGP(CLOUDS, OUTPUTS),
    "shared kernel": lambda: SharedKernelGP(ROWS, OUTPUTS, ScaleKernel(kernel())),
    "sampling noise": lambda: DistributionGP(ROWS, TARGETS, kernel(), sampling_noise=True),
    "with a column": beside_a_column,
}


def value(model: DistributionGP) -> float:
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with torch.no_grad():
        return mll(model(*model.train_inputs), model.train_targets).sum().item()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the number of clouds of each evaluation; models of more than 60 clouds are large."""
    sizes: list[int] = []
    loss = Ascent.loss

    def noted(self: Ascent, mll: ExactMarginalLogLikelihood, *known: Any) -> Tensor:
        sizes.append(mll.model.train_targets.shape[-1])
        return loss(self, mll, *known)

    monkeypatch.setattr(Ascent, "loss", noted)
    monkeypatch.setattr(ascent, "LARGE", 60)
    monkeypatch.setattr(ascent, "SUBSET", 40)
    monkeypatch.setattr(ascent, "_GAIN", 0.2)  # a smaller subset is further off
    return sizes


@pytest.mark.parametrize("name", MODELS)
def test_ends_where_a_fit_of_all_clouds_ends(name: str, seen: list[int]) -> None:
    state = torch.get_rng_state()
    model = fit(MODELS[name](), restarts=int(name != "two outputs"), seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert {40, 90} <= set(seen) <= {32, 40, 90}  # folds of the subset choose the metric
    assert model.train_targets.shape[-1] == 90
    assert not model.training
    fewer = seen.count(90)
    seen.clear()
    general = MODELS[name]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascent, "LARGE", 90)
        fit(general, restarts=int(name != "two outputs"), seed=1)
    assert {90} <= set(seen) <= {72, 90}
    assert fewer < len(seen)
    assert value(model) >= value(general) - 1e-4


@pytest.mark.parametrize(("after", "clouds"), [(2, 40), (4, 90)])
def test_an_interrupted_fit_keeps_the_best(
    after: int, clouds: int, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted on the subset, and on all clouds."""
    found: list[tuple[int, float, list[Tensor]]] = []
    see = Ascent.see

    def interrupted(self: Ascent, loss: float) -> None:
        values = [parameter.detach().clone() for parameter in self.model.parameters()]
        found.append((seen[-1], loss, values))
        see(self, loss)
        if sum(entry[0] == clouds for entry in found) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Ascent, "see", interrupted)
    model = MODELS["one output"]()
    with pytest.raises(KeyboardInterrupt):
        fit(model)
    assert not model.training
    assert found[-1][0] == clouds
    best = min((entry for entry in found if entry[0] == clouds), key=lambda entry: entry[1])
    assert all(map(torch.equal, best[2], model.parameters()))
    model.predict(CLOUDS[:3])


def test_a_long_fit_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_MANY", 89)
    model = MODELS["one output"]()
    with pytest.warns(CostWarning, match=r"90 clouds needs about .* GiB .*SparseDistributionGP"):
        fit(model, restarts=0)
