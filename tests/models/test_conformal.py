"""Conformal corrections: the finite-sample guarantee, and every model that takes one."""

import math
import pickle

import numpy as np
import pytest
import torch
from cases import randn
from scipy import stats
from torch import Tensor

from gp_distributions.metrics import coverage
from gp_distributions.models import ConformalCorrection


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


def test_factor_is_a_quantile_over_that_of_the_normal_distribution() -> None:
    y = np.array([0.5, -3.0, 2.0, 1.0])
    correction = ConformalCorrection(y, np.zeros(4), np.full(4, 2.0), level=0.6)  # third of four
    assert correction.scores.tolist() == [0.25, 0.5, 1.0, 1.5]
    assert correction.factor.item() == pytest.approx(1.0 / stats.norm.ppf(0.8), rel=1e-14)
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


def test_each_output_has_a_factor() -> None:
    y = randn(40, 2)
    mean, std = 0.1 * y.flip(0), 1 + y.roll(1, 0).abs()
    correction = ConformalCorrection(y, mean, std, level=0.5)
    each = torch.stack([y, mean, std]).unbind(-1)
    factors = [ConformalCorrection(*one, level=0.5).factor for one in each]
    found = correction.rescale(std)
    torch.testing.assert_close(found, std * torch.stack(factors), rtol=1e-13, atol=0)


def test_bad_input() -> None:
    one, pair = torch.ones(19).double(), torch.ones(19, 2)
    for y, level, message in (
        (one[:18], 0.95, r"at least 19 held-out clouds .* level 0\.95, got 18"),
        (one, 0.99, r"at least 99 held-out clouds .* level 0\.99, got 19"),
        (one, 95, "Expected a level between 0 and 1, got 95"),
    ):
        with pytest.raises(ValueError, match=message):
            ConformalCorrection(y, one[: len(y)], one[: len(y)], level=level)
    correction = ConformalCorrection(pair, pair, pair)
    with pytest.raises(ValueError, match="Expected standard deviations of 2 outputs in the last"):
        correction.rescale(one)
