"""Distribution functions and quantiles of targets, against SciPy and against sums."""

import numpy as np
import pytest
import scipy
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Binomial,
    Distribution,
    Laplace,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
)

from gp_distributions.numerics.predictive import cdf, integrated, quantile

SHARES = torch.tensor([0.01, 0.5, 0.9], dtype=torch.float64)
TEN = torch.full((3,), 10.0, dtype=torch.float64)
COUNTS = {
    "poisson": (Poisson(20 * SHARES), scipy.stats.poisson(20 * SHARES.numpy())),
    "binomial": (Binomial(TEN, SHARES), scipy.stats.binom(10, SHARES.numpy())),
    "bernoulli": (Bernoulli(SHARES), scipy.stats.bernoulli(SHARES.numpy())),
    "negative binomial": (
        NegativeBinomial(0.5 * TEN, SHARES),
        scipy.stats.nbinom(5, 1 - SHARES.numpy()),
    ),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, 1.0, 3.0, 9.0, 10.0, 30.0])
def test_counts_have_the_distribution_functions_of_scipy(name: str, value: float) -> None:
    ours, theirs = COUNTS[name]
    found = cdf(ours, torch.tensor(value, dtype=torch.float64))
    np.testing.assert_allclose(found, theirs.cdf(value), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("level", [0.001, 0.025, 0.5, 0.975])
def test_counts_have_the_quantiles_of_scipy(name: str, level: float) -> None:
    ours, theirs = COUNTS[name]
    np.testing.assert_array_equal(quantile(ours, level), theirs.ppf(level))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (StudentT(3.0, 2 * SHARES, 5 * SHARES), scipy.stats.t(3, 2 * SHARES, 5 * SHARES)),
        (Laplace(1e6 * SHARES, 5 * SHARES), scipy.stats.laplace(1e6 * SHARES, 5 * SHARES)),
    ],
)
@pytest.mark.parametrize("level", [0.001, 0.4, 0.975])
def test_numbers_have_the_quantiles_of_scipy(
    ours: Distribution, theirs: object, level: float
) -> None:
    np.testing.assert_allclose(quantile(ours, level), theirs.ppf(level), rtol=1e-9)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.2), (-1.0, 2.0), (2.0, 1e-9)])
@pytest.mark.parametrize("trials", [1.0, 10.0, 100_000.0])
def test_integrals_over_latent_values_are_exact(mean: float, std: float, trials: float) -> None:
    """The oracle adds many thin slices, far more than a likelihood can tell apart."""
    at, by = (torch.tensor([value], dtype=torch.float64) for value in (mean, std))

    def conditional(latent: Tensor) -> Binomial:
        return Binomial(torch.tensor(trials).to(latent), logits=latent)

    found = integrated(conditional, at, by)
    latent = mean + std * torch.linspace(-8, 8, 40_001, dtype=torch.float64)
    weights = Normal(0.0, 1.0).log_prob((latent - mean) / std).softmax(0)
    for value in (0.0, 1.0, 0.6 * trials):
        count = torch.tensor([round(value)], dtype=torch.float64)
        expected = (conditional(latent).log_prob(count) + weights.log()).logsumexp(0)
        if expected > -12:
            assert found.log_prob(count).item() == pytest.approx(expected.item(), abs=1e-4)
        below = (weights * cdf(conditional(latent), count)).sum()
        assert cdf(found, count).item() == pytest.approx(below.item(), abs=1e-6)
    assert found.mean.item() == pytest.approx((weights * latent.sigmoid()).sum() * trials)
