"""Standardized errors, temperatures and stacking weights; masked and complex arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from cases import rand, randn
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
)
from gp_distributions.metrics import nlpd
from gp_distributions.models import ConformalCorrection, KernelRidgeClassifier
from gp_distributions.numerics.predictions import (
    log_probabilities,
    stacking_weights,
    tempered,
)

P = rand(7, 4).softmax(-1)
TINY = torch.tensor([[1.0, 1e-290, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0, 3.0])
def test_are_powers_divided_by_their_sum(temperature: float) -> None:
    powers = P ** (1 / temperature)
    expected = powers / powers.sum(-1, keepdim=True)
    torch.testing.assert_close(tempered(P, temperature), expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(tempered(P, temperature).sum(-1), torch.ones(7).double())


def test_powers_below_the_smallest_number() -> None:
    found = tempered(TINY, 4.0)
    expected = [float(mpmath.mpf(p) ** 0.25) for p in (1, "1e-290", 0)]
    assert found[0].tolist() == pytest.approx(expected, rel=1e-12, abs=0)
    assert tempered(TINY, 0.25).tolist() == [[1.0, 0.0, 0.0]]


def test_log_probabilities_of_labels() -> None:
    labels, temperatures = torch.tensor([0, 1, 2, 3, 0, 1, 2]), [0.5, 1.0, 2.0]
    found = log_probabilities(P, labels, temperatures)
    assert found.shape == (7, 3)
    for i, label in enumerate(labels):
        for k, temperature in enumerate(temperatures):
            torch.testing.assert_close(found[i, k], tempered(P[i], temperature)[label].log())
    # More certain than the smallest number can say.
    confident = log_probabilities(TINY, torch.tensor([1]), [0.25])
    expected = float(mpmath.log(mpmath.mpf("1e-290")) * 4)
    torch.testing.assert_close(confident.item(), expected)


def densities(count: int, models: int, spread: float, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = randn(count, models, seed=generator)
    skill = rand(models, seed=generator)
    return spread * (noise - skill) + 5 * noise[:, :1]


def objective(log_densities: Tensor, weights: Tensor) -> float:
    return (log_densities + weights.log()).logsumexp(-1).mean().item()


@pytest.mark.parametrize(("count", "models"), [(5, 3), (40, 16), (300, 8)])
@pytest.mark.parametrize("spread", [0.05, 1.0, 20.0])
def test_no_model_could_gain(count: int, models: int, spread: float) -> None:
    """The objective is concave, so no mixture is better by more than the largest derivative."""
    found = densities(count, models, spread)
    weights = stacking_weights(found)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert bool((weights >= 0).all())
    mixture = (found + weights.log()).logsumexp(-1, keepdim=True)
    derivatives = (found - mixture).exp().mean(0) - 1
    assert derivatives.max().item() < 1e-5
    assert bool((derivatives[weights > 0].abs() < 1e-5).all())


@pytest.mark.parametrize("prior", [0.01, 0.5])
@pytest.mark.parametrize(
    ("count", "models", "spread"), [(5, 3, 20.0), (40, 16, 1.0), (300, 8, 5.0)]
)
def test_prior_keeps_every_model(prior: float, count: int, models: int, spread: float) -> None:
    """The derivatives of the penalised objective along the simplex vanish."""
    found = densities(count, models, spread)
    weights = stacking_weights(found, prior=prior)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert weights.min().item() >= (1 - 1e-6) * prior / (count + models * prior)
    mixture = (found + weights.log()).logsumexp(-1, keepdim=True)
    derivatives = (found - mixture).exp().sum(0) + prior / weights
    expected = torch.full_like(derivatives, count + models * prior)
    torch.testing.assert_close(derivatives, expected, rtol=2e-3, atol=0)


def test_units_of_targets_do_not_matter() -> None:
    found = densities(20, 4, 1.0)
    shifted = found + torch.linspace(-1e4, 1e4, 20).double().unsqueeze(-1)
    torch.testing.assert_close(
        stacking_weights(shifted), stacking_weights(found), atol=1e-5, rtol=0
    )


def test_density_may_be_zero_under_some_models() -> None:
    found = densities(10, 3, 1.0)
    found[0, 0] = found[1, 1] = -torch.inf
    weights = stacking_weights(found)
    assert np.isfinite(objective(found, weights))
    assert stacking_weights(found[:, :1].clamp_min(-1e5)).tolist() == [1.0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_other_values_are_refused(bad: float) -> None:
    found = densities(10, 3, 1.0)
    found[4, 1] = bad
    with pytest.raises(ValueError, match="log density of target 4"):
        stacking_weights(found)
    found[4] = -torch.inf
    with pytest.raises(ValueError, match="log density of target 4"):
        stacking_weights(found)


CLOUDS = PointClouds(torch.arange(4.0, dtype=torch.float64)[:, None, None])
Y = [1.0, 2.0, 4.0, -999.0]
MASKED = np.ma.masked_equal(Y, -999.0)
COMPLEX = torch.tensor([1.0, 2.0, 4.0, 5.0j])
USES: dict[str, Callable[[Any], Any]] = {
    "targets": lambda y: DistributionGP(CLOUDS, y),
    "variances": lambda y: DistributionGP(CLOUDS, [1.0, 2.0, 4.0, 3.0], train_Yvar=y),
    "covariates": lambda y: MixedInputs(x=y),
    "columns": lambda y: MixedInputs(table={"x": y}),
    "calibration": lambda y: nlpd(y, Y, np.ones(4)),
    "conformal": lambda y: ConformalCorrection(y, Y, np.ones(4)),
}


@pytest.mark.parametrize("use", USES)
def test_masked_numbers_and_complex_tensors(use: str) -> None:
    with pytest.raises(ValueError, match="a masked array, whose mask would be lost; leave out"):
        USES[use](MASKED)
    with pytest.raises(ValueError, match=r"expected real numbers, got (dtype )?torch\.complex"):
        USES[use](COMPLEX)


def test_masked_labels_and_targets_of_estimators() -> None:
    labels = np.ma.masked_equal([0, 1, 0, 9], 9)
    with pytest.raises(ValueError, match="Labels: expected an array, got a masked array"):
        ClassificationGP(CLOUDS, labels)
    with pytest.raises(ValueError, match="a masked array"):
        KernelRidgeClassifier(CLOUDS, labels, SlicedWassersteinKernel(1), ridge=0.1)
    with pytest.raises(ValueError, match="a masked array"):
        DistributionGPRegressor().fit(CLOUDS, MASKED)
