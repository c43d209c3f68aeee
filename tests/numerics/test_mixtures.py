"""Student's t distribution and mixtures on the line, against SciPy and numerical integration."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from gp_distributions.numerics import student_t
from gp_distributions.numerics.densities import Mixture

DEGREES = torch.tensor([1.0, 2.5, 9.0, 59.0, torch.inf], dtype=torch.float64)


def members(degrees: float) -> stats.rv_continuous:
    return stats.norm() if np.isinf(degrees) else stats.t(degrees)


class TestStudentT:
    def test_density_and_distribution_function(self) -> None:
        z = torch.linspace(-30, 30, 41, dtype=torch.float64)[:, None]
        density, below = student_t.log_density(z, DEGREES), student_t.cdf(z, DEGREES)
        for k, nu in enumerate(DEGREES.tolist()):
            expected = members(nu)
            torch.testing.assert_close(
                density[:, k], torch.as_tensor(expected.logpdf(z[:, 0])), rtol=1e-12, atol=1e-12
            )
            torch.testing.assert_close(
                below[:, k], torch.as_tensor(expected.cdf(z[:, 0])), rtol=1e-12, atol=0
            )

    def test_gradients(self) -> None:
        z = torch.linspace(-3, 3, 5, dtype=torch.float64)[:, None].requires_grad_()
        assert torch.autograd.gradcheck(lambda z: student_t.cdf(z, DEGREES), z)
        assert torch.autograd.gradcheck(lambda z: student_t.log_density(z, DEGREES), z)

    def test_quantiles(self) -> None:
        found = student_t.quantile(0.025, DEGREES)
        expected = [members(nu).ppf(0.025) for nu in DEGREES.tolist()]
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))

    @pytest.mark.parametrize("normal", [-9.0, -1.0, 0.5, 9.0])
    def test_stretches_are_quantiles_of_chi_squared_variables(self, normal: float) -> None:
        found = student_t.stretches(torch.tensor(normal, dtype=torch.float64), DEGREES)
        assert found[-1] == 1
        for factor, nu in zip(found[:-1].tolist(), DEGREES.tolist(), strict=False):
            square = nu / factor**2
            tail = stats.chi2(nu).cdf(square) if normal < 0 else stats.chi2(nu).sf(square)
            assert tail == pytest.approx(stats.norm.sf(abs(normal)), rel=1e-9)


def random_mixtures(seed: int = 0) -> Mixture:
    generator = torch.Generator().manual_seed(seed)
    weights, location, scale = torch.rand(3, 7, 5, generator=generator, dtype=torch.float64)
    weights[0, 1:3] = 0
    weights[1] = torch.tensor([0.0, 0, 0, 0, 1])
    location = 10 * location
    location[2] = torch.tensor([0.0, 0, 0, 0, 1e4])  # far apart
    degrees = torch.tensor([3.0, 4.5, 20.0, torch.inf, torch.inf], dtype=torch.float64)
    return Mixture(weights / weights.sum(-1, keepdim=True), location, scale + 0.05, degrees)


class TestMixtures:
    def test_moments_agree_with_integrals(self) -> None:
        mixture = random_mixtures()
        one = Mixture(mixture.weights[4], mixture.location[4], mixture.scale[4], mixture.degrees)

        def moment(function: object) -> float:
            def integrand(y: float) -> float:
                value = torch.tensor(y, dtype=torch.float64)
                return one.log_density(value).exp().item() * function(y)  # type: ignore[operator]

            return integrate.quad(integrand, -400, 400, points=[0, 5, 10], limit=500)[0]

        mean = moment(lambda y: y)
        assert moment(lambda y: 1) == pytest.approx(1, abs=1e-5)
        assert one.mean().item() == pytest.approx(mean, abs=1e-4)
        # The tails of a t distribution with 3 degrees of freedom decay slowly.
        variance = moment(lambda y: (y - mean) ** 2)
        assert one.variance().item() == pytest.approx(variance, rel=1e-2)

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
            torch.full((2,), torch.inf, dtype=torch.float64),
        )
        expected = stats.norm(0, 1e-3).ppf(0.8)
        assert mixture.quantile(0.4).item() == pytest.approx(expected, rel=1e-9)

    def test_gradients_of_quantiles(self) -> None:
        mixture = random_mixtures()
        fixed = mixture.weights, mixture.degrees

        def quantile(location: Tensor, scale: Tensor) -> Tensor:
            return Mixture(fixed[0], location, scale, fixed[1]).quantile(0.1)

        location, scale = mixture.location[3:], mixture.scale[3:]
        fixed = mixture.weights[3:], mixture.degrees
        inputs = location.clone().requires_grad_(), scale.clone().requires_grad_()
        assert torch.autograd.gradcheck(quantile, inputs, eps=1e-6, atol=1e-6)
