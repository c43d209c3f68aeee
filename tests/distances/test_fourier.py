"""The distance of characteristic functions: against loops, integrals and the kernels it belongs to."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cases import GAUSSIANS, as_rows, random_clouds
from numpy.typing import NDArray
from scipy import integrate, stats
from torch import Tensor

from gp_distributions import DistributionKernel
from gp_distributions.distances.fourier import Fourier

MEASURES = ["gaussian", "cauchy", "student_t3", "student_t5", "ball"]
both_samplings = pytest.mark.parametrize("sampling", ["orthogonal", "quasi_random"])


def random_gaussians(num: int, dim: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(num, dim, dim))
    return list(zip(rng.normal(size=(num, dim)), roots @ roots.swapaxes(-1, -2), strict=True))


def gaussian_rows(gaussians: list[tuple[NDArray[Any], NDArray[Any]]]) -> Tensor:
    return torch.tensor(np.array([np.append(m, S) for m, S in gaussians]))


def characteristic(
    frequency: NDArray[Any], gaussians: list[tuple[NDArray[Any], NDArray[Any]]], weights: Any
) -> complex:
    """Characteristic function of a mixture of Gaussians, or of a cloud if covariances are zero."""
    value = 0j
    for (mean, covariance), weight in zip(gaussians, weights, strict=True):
        exponent = 1j * frequency @ mean - frequency @ covariance @ frequency / 2
        value += weight * np.exp(exponent)
    return complex(value)


def by_hand(
    frequencies: NDArray[Any], phi: Callable[[int, NDArray[Any]], complex], num: int
) -> Any:
    values = np.array([[phi(i, frequency) for frequency in frequencies] for i in range(num)])
    return (np.abs(values[:, None] - values[None]) ** 2).mean(-1)


class TestValues:
    FREQUENCIES = np.random.default_rng(1).normal(size=(9, 3))

    def test_of_clouds(self) -> None:
        clouds = random_clouds(6, dim=3, sizes=(1, 9))
        none = np.zeros((3, 3))

        def phi(i: int, frequency: NDArray[Any]) -> complex:
            points, weights = clouds[i]
            return characteristic(frequency, [(x, none) for x in points.numpy()], weights.numpy())

        distance = Fourier(3, frequencies=self.FREQUENCIES)
        expected = by_hand(self.FREQUENCIES, phi, 6)
        np.testing.assert_allclose(distance.squared(as_rows(clouds)).numpy(), expected, atol=1e-14)

    def test_of_gaussians(self) -> None:
        gaussians = random_gaussians(6, 3)
        distance = Fourier(3, frequencies=self.FREQUENCIES, inputs="gaussians")
        expected = by_hand(
            self.FREQUENCIES,
            lambda i, frequency: characteristic(frequency, gaussians[i : i + 1], [1]),
            6,
        )
        actual = distance.squared(gaussian_rows(gaussians)).numpy()
        np.testing.assert_allclose(actual, expected, atol=1e-14)

    def test_of_mixtures(self) -> None:
        gaussians = random_gaussians(12, 3)
        weights = np.random.default_rng(2).uniform(size=(6, 2))
        weights /= weights.sum(1, keepdims=True)
        distance = Fourier(3, frequencies=self.FREQUENCIES, inputs="mixtures")
        expected = by_hand(
            self.FREQUENCIES,
            lambda i, frequency: characteristic(
                frequency, gaussians[2 * i : 2 * i + 2], weights[i]
            ),
            6,
        )
        rows = torch.cat(
            [gaussian_rows(gaussians), torch.tensor(weights).reshape(-1, 1)], dim=-1
        ).reshape(6, -1)
        np.testing.assert_allclose(distance.squared(rows).numpy(), expected, atol=1e-14)

    @pytest.mark.parametrize("shape", [(), (2,), (3, 1)])
    def test_linear_profile_is_the_inner_product(self, shape: tuple[int, ...]) -> None:
        kernel = DistributionKernel(Fourier(2), "linear").double()
        kernel.lengthscale = torch.tensor(1.0).double()
        rows = as_rows(random_clouds(6)).expand(*shape, 6, -1)
        features = kernel.distance.embed(rows)
        actual = kernel(rows).to_dense().detach()
        torch.testing.assert_close(actual, features @ features.mT, rtol=0, atol=1e-12)


class TestIntegral:
    """Within five standard errors of independent draws, which also bound those of spread-out ones."""

    COUNT = 2**14
    DENSITIES: dict[str, Any] = {  # noqa: RUF012
        "gaussian": stats.norm.pdf,
        "cauchy": stats.cauchy.pdf,
        "student_t3": stats.t(3).pdf,
        "student_t5": stats.t(5).pdf,
        "ball": stats.uniform(-1, 2).pdf,
    }

    @both_samplings
    @pytest.mark.parametrize("scale", [1.0, 3.0])
    @pytest.mark.parametrize("measure", MEASURES)
    def test_in_one_dimension(self, measure: str, scale: float, sampling: str) -> None:
        rows = torch.tensor([[0.3, 0.2], [-0.5, 0.4]]).double()  # N(0.3, 0.2) and N(-0.5, 0.4)

        def integrand(w: Any, power: int = 1) -> Any:
            one, other = (np.exp(1j * w * m - w**2 * v / 2) for m, v in rows.tolist())
            return np.abs(one - other) ** (2 * power) * self.DENSITIES[measure](w / scale) / scale

        edge = scale if measure == "ball" else math.inf
        mean, square = (
            2 * integrate.quad(integrand, 0, edge, args=(power,), limit=200)[0] for power in (1, 2)
        )
        distance = Fourier(
            1,
            measure=measure,
            scale=scale,
            num_frequencies=self.COUNT,
            sampling=sampling,
            inputs="gaussians",
        )
        error = math.sqrt((square - mean**2) / self.COUNT)
        assert error < 0.02 * mean
        assert float(distance.squared(rows)[0, 1]) == pytest.approx(mean, abs=5 * error)

    @both_samplings
    @pytest.mark.parametrize(
        ("measure", "kernel"),
        [
            ("gaussian", lambda r: np.exp(-(r**2) / 2)),
            ("cauchy", lambda r: np.exp(-r)),
            ("student_t3", lambda r: (1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r)),
            (
                "student_t5",
                lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r),
            ),
            ("ball", lambda r: 3 * (np.sin(r) - r * np.cos(r)) / r**3),
        ],
    )
    def test_is_mmd(self, measure: str, kernel: Callable[[Any], Any], sampling: str) -> None:
        """Single atoms in three dimensions, at a bandwidth of two."""
        length = 1.7
        rows = torch.tensor([[0.0, 0, 0, 1], [1.0, 2, 2, 1]]).double() * torch.tensor(
            [length / 3] * 3 + [1.0]
        )
        distance = Fourier(
            3, measure=measure, scale=1 / 2, num_frequencies=self.COUNT, sampling=sampling
        )
        expected = 2 - 2 * float(kernel(np.float64(length / 2)))
        # 2 - 2 cos is at most 4: its standard deviation is at most 2.
        error = 2 / math.sqrt(self.COUNT)
        assert float(distance.squared(rows)[0, 1]) == pytest.approx(expected, abs=5 * error)


class TestFrequencies:
    @both_samplings
    @pytest.mark.parametrize("dim", [1, 2, 5])
    def test_of_a_ball_fill_it(self, dim: int, sampling: str) -> None:
        distance = Fourier(dim, measure="ball", scale=3.0, num_frequencies=2000, sampling=sampling)
        norms = distance.frequencies.norm(dim=-1) / 3.0
        assert float(norms.max()) <= 1.0
        assert stats.kstest(norms.numpy() ** dim, "uniform").pvalue > 1e-3
        # Signs do not affect the distance, so compare second moments with the identity matrix.
        products = distance.frequencies.unsqueeze(-1) * distance.frequencies.unsqueeze(-2) / 9.0
        error = products.std(0) / math.sqrt(2000)
        expected = torch.eye(dim).double() / (dim + 2)
        assert bool(((products.mean(0) - expected).abs() <= 5 * error).all())

    @pytest.mark.parametrize("measure", MEASURES)
    def test_come_in_orthogonal_blocks(self, measure: str) -> None:
        frequencies = Fourier(4, measure=measure, num_frequencies=10).frequencies
        assert frequencies.shape == (10, 4)
        units = frequencies / frequencies.norm(dim=-1, keepdim=True)
        for start in (0, 4):
            block = units[start : start + 4]
            torch.testing.assert_close(block @ block.T, torch.eye(4).double(), rtol=0, atol=1e-12)

    def test_of_heavy_tails_see_what_a_band_does_not(self) -> None:
        """A normal density with and without ripples at frequencies near 30."""
        points = torch.linspace(-8, 8, 1601).double()
        normal = torch.exp(-0.5 * points.square())
        smooth, rippled = normal, normal * (1 + torch.cos(30 * points))
        rows = torch.stack([torch.stack([points, w], -1).flatten() for w in (smooth, rippled)])

        def squared(measure: str) -> float:
            return float(Fourier(1, measure=measure, num_frequencies=4000).squared(rows)[0, 1])

        assert squared("ball") < 1e-14  # rounding
        assert squared("cauchy") > 1e-5

    def test_that_are_given(self) -> None:
        frequencies = torch.tensor([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
        distance = Fourier(2, frequencies=frequencies, scale=7.0, num_frequencies=50)
        assert torch.equal(distance.frequencies, frequencies.double())
        assert repr(distance) == "Fourier(dim=2, measure=given, num_frequencies=3, inputs=clouds)"


class TestRefuses:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"measure": "laplace"}, "no measure 'laplace'; choose from gaussian, cauchy"),
            ({"sampling": "iid"}, "no sampling 'iid'; choose from orthogonal"),
            ({"num_frequencies": 0}, "num_frequencies: expected an integer >= 1, got 0"),
            ({"num_frequencies": torch.ones(2)}, "num_frequencies: expected an integer"),
            ({"scale": torch.ones(2)}, "scale > 0 and finite"),
            ({"scale": 0.0}, "scale > 0"),
            ({"scale": math.inf}, "scale > 0"),
            ({"frequencies": [[1.0]]}, r"shape \(F, 2\), got shape \(1, 1\)"),
            ({"frequencies": [1.0, 2.0]}, r"shape \(F, 2\)"),
            ({"frequencies": [[1.0, math.nan]]}, "frequencies: expected finite numbers"),
            ({"inputs": "images"}, "inputs="),
        ],
    )
    def test_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Fourier(2, **options)

    @pytest.mark.parametrize("value", [-1.0, -1e-3, math.nan])
    def test_covariances_that_are_none(self, value: float) -> None:
        rows = GAUSSIANS.rows(4)
        rows[2, 2:] = torch.tensor([value, 0, 0, value])
        with pytest.raises(ValueError, match="positive semi-definite covariances"):
            Fourier(2, inputs="gaussians").squared(rows)
