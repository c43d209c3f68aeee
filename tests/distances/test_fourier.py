"""The distance of characteristic functions: against averages by NumPy and the kernels it belongs to."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cases import GAUSSIANS
from scipy import stats

from gp_distributions import GaussianMixtures, Gaussians, PointClouds
from gp_distributions.distances.fourier import Fourier

MEASURES = ["gaussian", "cauchy", "student_t3", "student_t5", "ball"]
both_samplings = pytest.mark.parametrize("sampling", ["orthogonal", "quasi_random"])


@pytest.mark.parametrize("inputs", ["clouds", "gaussians", "mixtures"])
def test_is_the_mean_over_frequencies(inputs: str) -> None:
    rng = np.random.default_rng(0)
    size = 1 if inputs == "gaussians" else 4
    frequencies, mean = rng.normal(size=(9, 3)), rng.normal(size=(6, size, 3))
    roots = rng.normal(size=(6, size, 3, 3)) * (inputs != "clouds")
    covariance, weights = roots @ roots.swapaxes(-1, -2), rng.dirichlet(np.ones(size), 6)
    damping = np.einsum("fi,nkij,fj->nkf", frequencies, covariance, frequencies) / 2
    phi = (weights[..., None] * np.exp(1j * mean @ frequencies.T - damping)).sum(1)
    expected = (np.abs(phi[:, None] - phi) ** 2).mean(-1)
    X = {
        "clouds": lambda: PointClouds(mean, weights),
        "gaussians": lambda: Gaussians(mean[:, 0], covariance[:, 0]),
        "mixtures": lambda: GaussianMixtures(mean, covariance, weights),
    }[inputs]()
    squared = Fourier(3, frequencies=frequencies, inputs=inputs).squared(X.pack())
    np.testing.assert_allclose(squared.numpy(), expected, atol=1e-14)


class TestIntegral:
    """Within five standard errors of independent draws, which also bound those of spread-out ones."""

    COUNT = 2**14

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


class TestRefuses:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"measure": "laplace"}, "no measure 'laplace'; choose from gaussian, cauchy"),
            ({"sampling": "iid"}, "no sampling 'iid'; choose from orthogonal"),
            ({"num_frequencies": 0}, "num_frequencies: expected an integer >= 1, got 0"),
            ({"scale": 0.0}, "scale > 0"),
            ({"frequencies": [[1.0, math.nan]]}, "frequencies: expected finite numbers"),
            ({"frequencies": [[1.0]]}, r"shape \(F, 2\), got shape \(1, 1\)"),
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
