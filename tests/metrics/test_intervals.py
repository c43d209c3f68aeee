"""Scores of normal predictions agree with their definitions."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cases import rand, randn
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from gp_distributions.metrics import calibration, coverage, crps, nlpd, reliability

GENERATOR = torch.Generator().manual_seed(0)
Y = randn(60, seed=GENERATOR)
MEAN = randn(60, seed=GENERATOR)
STD = 0.2 + rand(60, seed=GENERATOR)
SIZES = torch.tensor([30, 5, 100]).repeat(20)


def expected_coverage(y: float, mean: float, std: float) -> float:
    return float(norm.ppf(0.025, mean, std) <= y <= norm.ppf(0.975, mean, std))


def expected_crps(y: float, mean: float, std: float) -> float:
    below = quad(lambda x: norm.cdf(x, mean, std) ** 2, mean - 12 * std, y, epsabs=1e-12)[0]
    above = quad(lambda x: norm.sf(x, mean, std) ** 2, y, mean + 12 * std, epsabs=1e-12)[0]
    return below + above


SCORES: dict[Callable[..., Tensor], Callable[[float, float, float], float]] = {
    coverage: expected_coverage,
    nlpd: lambda y, mean, std: -norm.logpdf(y, mean, std),
}


@pytest.mark.parametrize("score", SCORES)
def test_definition(score: Callable[..., Tensor]) -> None:
    expected = np.array(
        [SCORES[score](*v) for v in zip(Y.tolist(), MEAN.tolist(), STD.tolist(), strict=True)]
    )
    assert float(score(Y, MEAN, STD)) == pytest.approx(expected.mean(), rel=1e-9)
    by_size = score(Y, MEAN, STD, groups=SIZES)
    assert list(by_size) == [5, 30, 100]
    for size, value in by_size.items():
        assert float(value) == pytest.approx(expected[size == SIZES].mean(), rel=1e-9)
    # Arrays and string labels give the same scores.
    names = [f"size {size:3d}" for size in SIZES.tolist()]
    again = score(Y.numpy(), MEAN.numpy(), STD.numpy(), groups=names)
    assert [float(v) for v in again.values()] == [float(v) for v in by_size.values()]


def test_continuous_ranked_probability_score() -> None:
    expected = [
        expected_crps(*v) for v in zip(Y.tolist(), MEAN.tolist(), STD.tolist(), strict=True)
    ]
    assert float(crps(Y, MEAN, STD)) == pytest.approx(np.mean(expected), rel=1e-9)


def test_reliability_is_coverage_by_level() -> None:
    levels = (0.3, 0.8, 0.95)
    found = reliability(Y, MEAN, STD, levels=levels)
    expected = [float(coverage(Y, MEAN, STD, level=level)) for level in levels]
    assert found.tolist() == expected
    by_size = reliability(Y, MEAN, STD, levels=levels, groups=SIZES)
    assert by_size[30].tolist() == [
        float(coverage(Y, MEAN, STD, level=level, groups=SIZES)[30]) for level in levels
    ]
    assert reliability(Y, MEAN, STD).shape == (11,)


def test_far_targets_are_scored_by_their_error() -> None:
    y, std = torch.tensor([1e6], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    assert float(crps(y, 0 * y, std)) == pytest.approx(1e6 - 1 / math.sqrt(math.pi), rel=1e-12)


def test_summary() -> None:
    found = calibration(Y, MEAN, STD, groups=SIZES, level=0.9)
    assert found.groups == (5, 30, 100, "all")
    assert found.count.tolist() == [20, 20, 20, 60]
    groups = [size == SIZES for size in (5, 30, 100)] + [SIZES > 0]
    for score, values in ((nlpd, found.nlpd), (crps, found.crps)):
        expected = [float(score(Y[some], MEAN[some], STD[some])) for some in groups]
        assert values.tolist() == pytest.approx(expected, rel=1e-14)
    assert float(found.coverage[-1]) == float(coverage(Y, MEAN, STD, level=0.9))
    few = SIZES == 30
    assert float(found.rmse[1]) == pytest.approx(float((Y - MEAN)[few].square().mean().sqrt()))
    assert float(found.std[1]) == pytest.approx(float(STD[few].square().mean().sqrt()))
    assert calibration(Y, MEAN, STD).groups == ("all",)


def test_columns_of_data_frames() -> None:
    columns = {"y": Y, "mean": MEAN.detach(), "std": STD.detach()}
    frame = pd.DataFrame({k: v.numpy() for k, v in columns.items()}, index=range(100, 160))
    assert torch.equal(crps(frame["y"], frame["mean"], frame["std"]), crps(Y, MEAN, STD))


@pytest.mark.parametrize(
    ("score", "values", "options", "message"),
    [
        (nlpd, (Y, MEAN[:, None], STD), {}, r"the same shape \(N,\), got \(60,\), \(60, 1\)"),
        (coverage, (Y.index_fill(0, torch.tensor(4), torch.nan), MEAN, STD), {}, "bag 4 are nan"),
        (nlpd, (Y, MEAN, STD.index_fill(0, torch.tensor(1), 0)), {}, r"bag 1 are .* and 0\.0"),
        (reliability, (Y, MEAN, STD), {"levels": [0.5, 1.0]}, "between 0 and 1"),
        (coverage, (Y, MEAN, STD), {"groups": SIZES[:59]}, "label for each of 60 bags, got 59"),
    ],
)
def test_bad_input(score: Callable[..., Tensor], values: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(*values, **options)
