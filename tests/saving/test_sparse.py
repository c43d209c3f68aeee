"""Saved sparse models: the same bits without the training data."""

from pathlib import Path
from typing import Any

import pytest
import torch
from cases import as_rows, halving, random_clouds, reloaded
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
    save,
)

CLOUDS = random_clouds(60, sizes=(5, 20))
ROWS = as_rows(CLOUDS)
TARGETS = torch.stack([points.square().mean() for points, _ in CLOUDS])
SEVERAL = torch.stack([TARGETS, ROWS.sin().sum(-1)], -1)

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"train_Y": SEVERAL[:50]},
    "sampling-noise": {"sampling_noise": True},
    "known": {"train_Yvar": 0.1 + TARGETS[:50] ** 2},
    "several-known": {"train_Y": SEVERAL[:50], "train_Yvar": 0.1 + SEVERAL[:50] ** 2},
    "input-transform": {"input_transform": halving(ROWS.shape[-1])},
    "untransformed": {"outcome_transform": None},
}


def make_model(**options: Any) -> SparseDistributionGP:
    kernel = ScaleKernel(SlicedWassersteinKernel(2, num_slices=5, num_quantiles=10))
    given = {"train_X": ROWS[:50], "train_Y": TARGETS[:50], "covar_module": kernel}
    return SparseDistributionGP(**given | {"num_inducing": 15, "seed": 4} | options)


@pytest.mark.parametrize("name", OPTIONS)
def test_same_bits(name: str) -> None:
    model = fit(make_model(**OPTIONS[name]), restarts=0)
    loaded = reloaded(model)
    assert type(loaded) is SparseDistributionGP
    assert (loaded.num_inducing, loaded.seed, loaded.training) == (15, 4, False)
    assert torch.equal(loaded.bound(), model.bound())
    assert all(map(torch.equal, loaded.predict(ROWS[50:]), model.predict(ROWS[50:])))
    assert torch.equal(reloaded(loaded).predict(ROWS)[1], model.predict(ROWS)[1])


def test_noise_can_change_without_the_data_but_the_kernel_cannot() -> None:
    model = make_model()
    loaded = reloaded(model)
    for one in (model, loaded):
        one.likelihood.noise = 0.5
    assert torch.equal(loaded.predict(ROWS[50:])[0], model.predict(ROWS[50:])[0])
    loaded.covar_module.outputscale = 2.0
    with pytest.raises(ValueError, match="with its training data"):
        loaded.predict(ROWS[50:])


@pytest.mark.parametrize("labels", [["a", "b", "c"], [3, 1, 7]])
def test_classifiers(labels: list[Any]) -> None:
    kernel = ScaleKernel(SlicedWassersteinKernel(2, num_slices=5, num_quantiles=10))
    given = [labels[i % 3] for i in range(50)]
    model = SparseClassificationGP(ROWS[:50], given, kernel, num_inducing=15)
    fit(model, restarts=0, alpha_epsilons=[0.02], temperature=0.7)
    loaded = reloaded(model)
    assert loaded.alpha_epsilon == model.alpha_epsilon
    assert loaded.temperature == model.temperature
    assert loaded.classes_.tolist() == sorted(labels)
    assert torch.equal(loaded.predict_proba(ROWS[50:]), model.predict_proba(ROWS[50:]))


def test_files_do_not_grow_with_the_data(tmp_path: Path) -> None:
    for count in (25, 50):
        save(make_model(train_X=ROWS[:count], train_Y=TARGETS[:count]), tmp_path / str(count))
    sizes = [(tmp_path / name).stat().st_size for name in ("25", "50")]
    assert abs(sizes[1] - sizes[0]) < 100  # numbers in the header have more or fewer digits
