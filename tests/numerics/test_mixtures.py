"""Mixtures of normal distributions on the line, against SciPy and numerical integration."""

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from gp_distributions.numerics.densities import Mixture


def random_mixtures(seed: int = 0) -> Mixture:
    generator = torch.Generator().manual_seed(seed)
    weights, location, scale = torch.rand(3, 7, 5, generator=generator, dtype=torch.float64)
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
