"""Conformal corrections: the finite-sample guarantee, and every model that takes one."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from cases import as_rows, random_clouds
from scipy import stats
from torch import Tensor

from gp_distributions import (
    ConformalCorrection,
    DistributionGP,
    DistributionGPRegressor,
    MixtureModel,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    fit,
    integrate_hyperparameters,
)
from gp_distributions.judging import coverage

pytestmark = pytest.mark.usefixtures("short_fits")

ROWS = as_rows(random_clouds(40, sizes=(3, 9)))
CLOUDS = PointClouds.unpack(ROWS, 2)
TARGETS = ROWS[:, :6].square().sum(-1)
OUTPUTS = torch.stack([TARGETS, TARGETS.sin()], dim=-1)


def covered(y: Tensor, mean: Tensor, std: Tensor, level: float) -> Tensor:
    return (y - mean).abs() <= std * torch.special.ndtri(torch.tensor((1 + level) / 2).double())


@pytest.mark.parametrize(
    ("level", "number"), [(0.95, 19), (0.95, 20), (0.95, 57), (0.9, 9), (0.8, 40), (0.5, 1)]
)
def test_share_of_places_of_a_new_score_is_exact(level: float, number: int) -> None:
    # With exchangeable data, each of n + 1 targets is equally likely to be the new one. The share of
    # those that are held by the correction from the n others is the probability of coverage.
    y = torch.from_numpy(np.random.default_rng(number).standard_t(1, size=number + 1))
    mean, std = 0.1 * y.roll(1), 1 + y.roll(2).abs()
    held = 0
    for new in range(number + 1):
        kept = torch.arange(number + 1) != new
        correction = ConformalCorrection(y[kept], mean[kept], std[kept], level=level)
        held += int(covered(y[new], mean[new], correction.rescale(std)[new], level))
    share = held / (number + 1)
    assert held == math.ceil(round((number + 1) * level, 9))
    assert level - 1e-12 <= share <= level + 1 / (number + 1)


def test_heavy_tails_keep_the_guarantee() -> None:
    # A model fitted to few heavy-tailed targets is wrong; the guarantee does not mind.
    rng = np.random.default_rng(4)
    level, held_out, new, draws = 0.9, 30, 20, 150
    centres = rng.normal(size=20 + draws * (held_out + new))
    clouds = PointClouds((centres[:, None] + 0.1 * rng.normal(size=(len(centres), 4)))[..., None])
    y = torch.from_numpy(np.sin(centres) + 0.3 * rng.standard_t(1.5, size=len(centres)))
    kernel = SlicedWassersteinKernel(1, num_quantiles=4)
    model = fit(DistributionGP(clouds[:20], y[:20], kernel), restarts=0)
    parts = [part.reshape(draws, -1) for part in (y[20:], *model.predict(clouds[20:]))]
    shares, bare = [], []
    for target, mean, std in zip(*parts, strict=True):
        known = [part[:held_out] for part in (target, mean, std)]
        correction = ConformalCorrection(*known, level=level)
        target, mean, std = (part[held_out:] for part in (target, mean, std))
        shares.append(coverage(target, mean, correction.rescale(std), level=level).item())
        bare.append(coverage(target, mean, std, level=level).item())
    # Mean over draws: 28 of 31 places. Draws are independent, new targets of one draw are not, so the
    # standard error is that of the draws.
    error = np.std(shares, ddof=1) / math.sqrt(draws)
    probability = 28 / 31
    assert abs(np.mean(shares) - probability) < 4 * error
    assert abs(np.mean(bare) - level) > 5 * np.std(bare, ddof=1) / math.sqrt(draws)
    # The coverage of one draw follows a beta distribution: test its extremes, of 20 new targets each.
    law = stats.betabinom(new, 28, 3)
    low, high = law.ppf(1e-5), law.ppf(1 - 1e-5)
    assert all(low <= round(share * new) <= high for share in shares)


def test_factor_is_a_quantile_over_that_of_the_normal_distribution() -> None:
    y = np.array([0.5, -3.0, 2.0, 1.0])
    correction = ConformalCorrection(y, np.zeros(4), np.full(4, 2.0), level=0.6)  # third of four
    assert correction.scores.tolist() == [0.25, 0.5, 1.0, 1.5]
    assert correction.factor.item() == pytest.approx(1.0 / stats.norm.ppf(0.8), rel=1e-14)
    assert repr(correction) == "ConformalCorrection(level=0.6, clouds=4, factor=1.19)"
    again = pickle.loads(pickle.dumps(correction))
    assert torch.equal(again.factor, correction.factor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tied_targets_lie_within_the_interval(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        values = torch.rand(3, generator=generator, dtype=dtype)
        y, mean, std = (value.expand(19) for value in values)
        correction = ConformalCorrection(y, mean, std)
        assert coverage(y, mean, correction.rescale(std)) == 1
        assert correction.rescale(std).dtype == dtype


def model_of(name: str, y: Tensor) -> Any:
    known = CLOUDS[:15], y[:15]
    kernel = SlicedWassersteinKernel(2, num_slices=8, num_quantiles=10)
    variances = torch.full_like(known[1], 0.1)
    makers: dict[str, Any] = {
        "exact": lambda: DistributionGP(*known, kernel),
        "known noise": lambda: DistributionGP(*known, kernel, train_Yvar=variances),
        "sampling noise": lambda: DistributionGP(*known, kernel, sampling_noise=True),
        "shared": lambda: SharedKernelGP(*known, kernel),
        "sparse": lambda: SparseDistributionGP(*known, kernel, num_inducing=8),
        "mixture": lambda: MixtureModel([DistributionGP(*known, kernel)] * 2, [0.3, 0.7]),
        "integrated": lambda: integrate_hyperparameters(DistributionGP(*known)),
    }
    return makers[name]()


SINGLE = ["exact", "known noise", "sampling noise", "shared", "sparse", "mixture", "integrated"]
CASES = [(name, TARGETS) for name in SINGLE]
CASES += [(name, OUTPUTS) for name in ("exact", "known noise", "shared", "sparse", "mixture")]


@pytest.mark.parametrize(("name", "y"), CASES)
def test_models_scale_their_standard_deviations(name: str, y: Tensor) -> None:
    model = model_of(name, y)
    before = model.predict(CLOUDS[35:])
    correction = ConformalCorrection(y[15:35], *model.predict(CLOUDS[15:35]))
    assert correction.factor.shape == y.shape[1:]
    mean, std = model.predict(CLOUDS[35:], conformal=correction)
    assert torch.equal(mean, before[0])
    assert torch.allclose(std, before[1] * correction.factor, rtol=1e-13, atol=0)
    assert std.dtype == before[1].dtype
    # The model is as it was.
    assert all(map(torch.equal, model.predict(CLOUDS[35:]), before))
    with pytest.raises(ValueError, match="Expected observation_noise=True with"):
        model.predict(CLOUDS[35:], observation_noise=False, conformal=correction)
    with pytest.raises(TypeError, match=r"Expected a ConformalCorrection or None .*, got float"):
        model.predict(CLOUDS[35:], conformal=0.95)


def test_regressors() -> None:
    regressor = DistributionGPRegressor(restarts=0).fit(CLOUDS[:15], TARGETS[:15])
    held_out = regressor.predict(CLOUDS[15:35], return_std=True)
    correction = ConformalCorrection(TARGETS[15:35], *held_out)
    mean, std = regressor.predict(CLOUDS[35:], return_std=True, conformal=correction)
    bare = regressor.predict(CLOUDS[35:], return_std=True)
    assert mean.tolist() == bare[0].tolist()
    assert std.tolist() == pytest.approx(correction.factor.item() * bare[1], rel=1e-13)


def test_bad_input() -> None:
    one = torch.ones(19).double()
    missing = torch.where(torch.arange(19) == 3, math.nan, one)
    pair = torch.ones(19, 2)
    with pytest.raises(ValueError, match=r"at least 19 held-out clouds .* level 0\.95, got 18"):
        ConformalCorrection(one[:18], one[:18], one[:18])
    with pytest.raises(ValueError, match=r"at least 99 held-out clouds .* level 0\.99, got 19"):
        ConformalCorrection(one, one, one, level=0.99)
    with pytest.raises(ValueError, match="Expected a level between 0 and 1, got 95"):
        ConformalCorrection(one, one, one, level=95)
    for level in ("95", None, math.nan, 0, [0.5, 0.9]):
        with pytest.raises(ValueError, match="Expected level > 0 and finite, got "):
            ConformalCorrection(one, one, one, level=level)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"of the same shape \(N,\) or \(N, outputs\), got"):
        ConformalCorrection(one, one.unsqueeze(-1), one)
    with pytest.raises(ValueError, match=r"of bag 3 are nan, 1\.0 and 1\.0"):
        ConformalCorrection(missing, one, one)
    correction = ConformalCorrection(pair, pair, pair)
    with pytest.raises(ValueError, match="Expected standard deviations of 2 outputs in the last"):
        correction.rescale(one)


@pytest.mark.parametrize(("y", "other"), [(TARGETS, OUTPUTS), (OUTPUTS, TARGETS)])
@pytest.mark.parametrize("name", ["exact", "sparse", "mixture"])
def test_corrections_of_other_outputs(name: str, y: Tensor, other: Tensor) -> None:
    correction = ConformalCorrection(other, other + 1, torch.ones_like(other), level=0.5)
    with pytest.raises(ValueError, match=r"a conformal correction of \d outputs"):
        model_of(name, y).predict(CLOUDS[15:17], conformal=correction)
