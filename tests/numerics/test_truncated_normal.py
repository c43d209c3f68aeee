"""Truncated normal variables, against SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from gp_distributions.numerics.densities import truncated, untruncated

X = torch.linspace(-3, 3, 25, dtype=torch.float64)
ENDS = [(-math.inf, math.inf), (-1.0, 0.5), (0.7, math.inf), (-math.inf, -4.0), (5.0, 6.0)]


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_quantiles_agree_with_scipy(low: float, high: float) -> None:
    ends = torch.tensor([low, high], dtype=torch.float64).unbind()
    found = truncated(X, *ends)
    expected = stats.truncnorm(low, high).ppf(stats.norm.cdf(X.numpy()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(untruncated(found, *ends), X, rtol=1e-6, atol=1e-6)


def test_both_tails_keep_their_digits() -> None:
    ends = torch.tensor(-math.inf), torch.tensor(math.inf)
    far = torch.tensor([-20.0, -9.0, 9.0, 20.0], dtype=torch.float64)
    torch.testing.assert_close(truncated(far, *ends), far, rtol=1e-12, atol=0)
    torch.testing.assert_close(untruncated(far, *ends), far, rtol=1e-12, atol=0)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_intervals_without_probability_end_at_the_nearest_end(sign: float) -> None:
    ends = sorted([sign * 50.0, sign * math.inf])
    found = truncated(X, *(torch.tensor(end) for end in ends))
    torch.testing.assert_close(found, torch.full_like(X, sign * 50))
