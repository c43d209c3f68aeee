"""Mixtures, truncated normals and targets on the line, against SciPy and numerical integration."""

import math

import numpy as np
import pytest
import scipy
import torch
from cases import rand
from scipy import integrate, stats
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

from gp_distributions.numerics.densities import (
    Mixture,
    cdf,
    integrated,
    quantile,
    truncated,
    untruncated,
)


def random_mixtures(seed: int = 0) -> Mixture:
    weights, location, scale = rand(3, 7, 5, seed=seed)
    weights[0, 1:3] = 0
    weights[1] = torch.tensor([0.0, 0, 0, 0, 1])
    location = 10 * location
    location[2] = torch.tensor([0.0, 0, 0, 0, 1e4])  # far apart
    return Mixture(weights / weights.sum(-1, keepdim=True), location, scale + 0.05)


class TestMixtures:
    def test_moments_agree_with_integrals(self) -> None:
        mixture = random_mixtures()
        one = Mixture(mixture.weights[4], mixture.location[4], mixture.scale[4])

        def moment(function: object) -> float:
            def integrand(y: float) -> float:
                value = torch.tensor(y, dtype=torch.float64)
                return one.log_density(value).exp().item() * function(y)  # type: ignore[operator]

            return integrate.quad(integrand, -400, 400, points=[0, 5, 10], limit=500)[0]

        mean = moment(lambda y: y)
        assert moment(lambda y: 1) == pytest.approx(1, abs=1e-8)
        assert one.mean().item() == pytest.approx(mean, abs=1e-6)
        variance = moment(lambda y: (y - mean) ** 2)
        assert one.variance().item() == pytest.approx(variance, rel=1e-6)

    @pytest.mark.parametrize("level", [1e-9, 0.025, 0.5, 0.8, 1 - 1e-6])
    @pytest.mark.parametrize("seed", range(4))
    def test_quantiles_invert_the_distribution_function(self, level: float, seed: int) -> None:
        mixture = random_mixtures(seed)
        found = mixture.quantile(level)
        assert mixture.cdf(found).tolist() == pytest.approx([level] * 7, rel=1e-9, abs=1e-14)

    def test_quantile_of_a_mixture_far_from_normal(self) -> None:
        """Between two narrow modes, Newton's method alone does not converge."""
        mixture = Mixture(
            *torch.tensor([[0.5, 0.5], [0.0, 100.0], [1e-3, 1e-3]], dtype=torch.float64),
        )
        expected = stats.norm(0, 1e-3).ppf(0.8)
        assert mixture.quantile(0.4).item() == pytest.approx(expected, rel=1e-9)

    def test_gradients_of_quantiles(self) -> None:
        mixture = random_mixtures()

        def quantile(location: Tensor, scale: Tensor) -> Tensor:
            return Mixture(mixture.weights[3:], location, scale).quantile(0.1)

        location, scale = mixture.location[3:], mixture.scale[3:]
        inputs = location.clone().requires_grad_(), scale.clone().requires_grad_()
        assert torch.autograd.gradcheck(quantile, inputs, eps=1e-6, atol=1e-6)


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
