"""What ``condition_on_observations`` takes as targets and noise variances of new clouds."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from cases import random_clouds

from gp_distributions import (
    DistributionGP,
    PointClouds,
    SlicedWassersteinKernel,
    integrate_hyperparameters,
)

NAMES = list("abcdefghij")
PLAIN = random_clouds(10, sizes=(3, 8))
CLOUDS = PointClouds.from_list(dict(zip(NAMES, [points for points, _ in PLAIN], strict=True)))
ROWS = CLOUDS.pack()
TARGETS = ROWS[:, 0].sin()
NOISE = torch.linspace(0.01, 0.2, 8, dtype=torch.float64)


def learned(**options: Any) -> DistributionGP:
    kernel = SlicedWassersteinKernel(2, num_slices=5)
    return DistributionGP(CLOUDS[:8], TARGETS[:8], kernel, **options)


def known() -> DistributionGP:
    return learned(train_Yvar=NOISE, outcome_transform=None)


MODELS: dict[str, Callable[[], Any]] = {
    "exact": learned,
    "known noise": known,
    "integrated": lambda: integrate_hyperparameters(learned()),
    "integrated with known noise": lambda: integrate_hyperparameters(known()),
}


@cache
def made(name: str) -> Any:
    return MODELS[name]()


KNOWN = [name for name in MODELS if "known" in name]


@pytest.mark.parametrize("name", MODELS)
def test_kinds_of_targets(name: str) -> None:
    model = made(name)
    targets = TARGETS[8:].to(torch.float32).double()
    expected = model.condition_on_observations(CLOUDS[8:], targets).predict(CLOUDS)
    series = pd.Series(targets.numpy()[::-1], index=NAMES[:7:-1]).iloc[::-1]
    for given in (list(targets), targets.numpy()[::-1][::-1], series, targets.unsqueeze(-1)):
        found = model.condition_on_observations(CLOUDS[8:], given).predict(CLOUDS)
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", ["exact", "integrated with known noise"])
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0.0, float("nan")], r"finite targets, but that of cloud 1 is \[nan\]"),
        (pd.Series([0.0, np.inf], index=NAMES[8:]), r"cloud 1 \(named 'j'\) is \[inf\]"),
        (pd.Series([0.0, 1.0], index=["j", "i"]), "targets in the order of the clouds"),
        ([0.0], r"a target for each of 2 clouds and 1 outputs, got Y of shape \(1,\)"),
    ],
)
def test_wrong_targets(name: str, targets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(name).condition_on_observations(CLOUDS[8:], targets)


def test_an_axis_of_outputs_is_expected_where_the_model_has_one() -> None:
    model = DistributionGP(CLOUDS[:8], TARGETS[:8].unsqueeze(-1), SlicedWassersteinKernel(2))
    model.condition_on_observations(CLOUDS[8:], TARGETS[8:].unsqueeze(-1))
    with pytest.raises(ValueError, match=r"2 clouds and 1 outputs, got Y of shape \(2,\)"):
        model.condition_on_observations(CLOUDS[8:], TARGETS[8:])


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ([0.1, float("nan")], r"positive noise variances, but that of cloud 1 is \[nan\]"),
        ([0.0, 0.1], r"that of cloud 0 is \[0.0\]"),
        ([0.1], r"a noise variance for each of 2 clouds .* got noise of shape \(1,\)"),
        (pd.Series([0.1, 0.2], index=["j", "i"]), "noise variances in the order of the clouds"),
    ],
)
def test_wrong_noise(name: str, noise: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(name).condition_on_observations(CLOUDS[8:], TARGETS[8:], noise=noise)


@pytest.mark.parametrize("name", KNOWN)
def test_kinds_of_noise(name: str) -> None:
    model, X, Y, noise = made(name), CLOUDS[8:], TARGETS[8:], [0.5, 0.3]
    column = torch.tensor(noise, dtype=torch.float64).unsqueeze(-1)
    expected = model.condition_on_observations(X, Y.unsqueeze(-1), noise=column).predict(CLOUDS)
    for given in (noise, np.array(noise), column.squeeze(-1), column):
        found = model.condition_on_observations(X, Y, noise=given).predict(CLOUDS)
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", KNOWN)
def test_unknown_noise_is_the_mean_of_the_known(name: str) -> None:
    model = made(name)
    mean = [NOISE.mean().item()] * 2
    expected = model.condition_on_observations(CLOUDS[8:], TARGETS[8:], noise=mean).predict(CLOUDS)
    found = model.condition_on_observations(CLOUDS[8:], TARGETS[8:]).predict(CLOUDS)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_unknown_noise_of_fantasies(batch_shape: tuple[int, ...]) -> None:
    """BoTorch conditions on batches of targets, for each output, with the mean of the known noise."""
    outputs = torch.stack([TARGETS, TARGETS.square()], dim=-1)
    noise = torch.stack([NOISE, 3 * NOISE], dim=-1)
    kernel = SlicedWassersteinKernel(2, num_slices=5, batch_shape=torch.Size([2]))
    model = DistributionGP(CLOUDS[:8], outputs[:8], kernel, train_Yvar=noise)
    X = ROWS[6:].expand(*batch_shape, 4, -1)
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    expected = model.fantasize(X, sampler).posterior(ROWS)
    mean = noise.mean(0) / model.outcome_transform.stdvs.square().squeeze()
    sampled = model.posterior(X, observation_noise=mean.expand(*X.shape[:-1], 2))
    found = model.condition_on_observations(X, sampler(sampled)[1]).posterior(ROWS)
    torch.testing.assert_close(found.mean, expected.mean[1])
    torch.testing.assert_close(found.variance, expected.variance[1])


@pytest.mark.parametrize("name", ["exact", "integrated"])
def test_noise_is_refused_where_the_noise_is_learned(name: str) -> None:
    """GPyTorch would forget it with the next change of mode."""
    with pytest.raises(ValueError, match=r"Expected noise=None.*Make the model with train_Yvar"):
        made(name).condition_on_observations(CLOUDS[8:], TARGETS[8:], noise=[0.1, 0.1])


def test_fantasies_have_the_noise_that_botorch_gives() -> None:
    model, noise = learned(), torch.full((2, 1), 0.5, dtype=torch.float64)
    sampler = SobolQMCNormalSampler(torch.Size([2]), seed=0)
    found = model.fantasize(ROWS[8:], sampler, observation_noise=noise).posterior(ROWS).variance
    less = model.fantasize(ROWS[8:], sampler).posterior(ROWS).variance
    assert (found[:, 8:] > less[:, 8:]).all()
