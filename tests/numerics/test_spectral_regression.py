"""Regression with an integrated mean and outputscale, against dense algebra and integrals."""

import math

import numpy as np
import pytest
import torch
from gp_distributions.numerics.spectral_regression import SpectralRegression
from scipy import integrate, stats
from torch import Tensor

T, Q = 7, 3
RATIOS = torch.tensor([0.01, 0.3], dtype=torch.float64)


def data(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Covariances of known and new values for two lengthscales, targets, and noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T + Q, 2, generator=generator, dtype=torch.float64)
    squared = torch.cdist(x, x).square()
    covariances = torch.stack([torch.exp(-squared / (2 * s)) for s in (0.5, 3.0)])
    y = torch.randn(T, generator=generator, dtype=torch.float64) + 2
    noise = torch.rand(T, generator=generator, dtype=torch.float64) + 0.5
    return covariances, y, noise


def regression(**options: object) -> tuple[SpectralRegression, Tensor, Tensor, Tensor]:
    covariances, y, noise = data()
    found = SpectralRegression(covariances[:, :T, :T], y, RATIOS, noise=noise, **options)
    return found, covariances, y, noise


class TestEvidence:
    def test_it_is_the_integral_over_mean_and_outputscale(self) -> None:
        found, covariances, y, noise = regression()
        values = found.log_evidence
        logs = torch.zeros(2, 2, dtype=torch.float64)
        for i, j in np.ndindex(2, 2):
            matrix = (covariances[i, :T, :T] + RATIOS[j] * noise.diag()).numpy()

            means, log_scales = np.linspace(-60, 60, 2001), np.linspace(-6, 14, 401)
            apart = y.numpy()[:, None] - means
            squares = (apart * np.linalg.solve(matrix, apart)).sum(0)
            logdet = np.linalg.slogdet(2 * np.pi * matrix)[1]
            exponents = squares[:, None] * np.exp(-log_scales) + T * log_scales + logdet
            # The trapezoidal rule is exact to rounding for such integrands, up to the tails.
            total = np.exp(-0.5 * exponents).sum() * 0.06 * 0.05
            logs[i, j] = math.log(total)
        # The determinant of the noise is the same for all members, and is left out.
        torch.testing.assert_close(values - values[0, 0], logs - logs[0, 0], rtol=1e-4, atol=1e-4)
        constant = (-0.5 * noise.log().sum()).item()
        assert (logs[0, 0] - values[0, 0]).item() == pytest.approx(constant, abs=1e-4)

    def test_known_outputscales_with_a_mean(self) -> None:
        scales = torch.tensor([2.0, 0.7], dtype=torch.float64)
        found, covariances, y, noise = regression(outputscales=scales)
        for i, j in np.ndindex(2, 2):
            matrix = (scales[j] * (covariances[i, :T, :T] + RATIOS[j] * noise.diag())).numpy()

            def density(mean: float, matrix: np.ndarray = matrix) -> float:
                return stats.multivariate_normal(np.full(T, mean), matrix).pdf(y.numpy())

            expected = math.log(integrate.quad(density, -20, 20, points=[2.0])[0])
            shifted = found.log_evidence[i, j] - 0.5 * noise.log().sum()
            assert shifted.item() == pytest.approx(expected, rel=1e-7)


class TestPredictions:
    @pytest.mark.parametrize("constant", [True, False])
    def test_locations_and_scales_agree_with_dense_algebra(self, constant: bool) -> None:
        found, covariances, y, noise = regression(constant=constant)
        across, within = covariances[:, T:, :T], covariances[:, T:, T:]
        location, squared = found.predict(across, within.diagonal(dim1=-2, dim2=-1))
        members = torch.arange(4)
        joint = found.covariance(across, within, members).reshape(2, 2, Q, Q)
        nu = T - 1 if constant else T
        assert found.degrees == nu
        for i, j in np.ndindex(2, 2):
            inverse = torch.linalg.inv(covariances[i, :T, :T] + RATIOS[j] * noise.diag())
            k, ones = across[i], torch.ones(T, dtype=torch.float64) * constant
            total = ones @ inverse @ ones
            mean = ones @ inverse @ y / total if constant else torch.tensor(0.0)
            residual = y - mean * ones
            expected = mean + k @ inverse @ residual
            left = torch.ones(Q, dtype=torch.float64) * constant - k @ inverse @ ones
            prior = within[i] - k @ inverse @ k.T
            if constant:
                prior = prior + torch.outer(left, left) / total
            matrix = residual @ inverse @ residual / nu * prior
            torch.testing.assert_close(location[i, j], expected)
            torch.testing.assert_close(joint[i, j], matrix)
            torch.testing.assert_close(squared[i, j], matrix.diagonal())

    def test_batches(self) -> None:
        """Batches of targets share the covariances of one batch of clouds."""
        covariances, y, noise = data()
        many = torch.stack([y, 2 * y + 1, y.flip(-1)])[:, None]  # 3 x 1 x T
        batch = torch.stack([covariances, covariances.flip(-3)])  # 2 x L
        found = SpectralRegression(batch[..., :T, :T], many, RATIOS, noise=noise)
        across, within = batch[..., T:, :T], batch[..., T:, T:]
        variances = within.diagonal(dim1=-2, dim2=-1)
        location, squared = found.predict(across, variances)
        joint = found.covariance(across, within, torch.tensor([1, 2]))
        assert location.shape == (3, 2, 2, 2, Q)
        assert joint.shape == (3, 2, 2, Q, Q)
        for f, b in np.ndindex(3, 2):
            one = SpectralRegression(batch[b, :, :T, :T], many[f, 0], RATIOS, noise=noise)
            expected = one.predict(across[b], variances[b])
            torch.testing.assert_close((location[f, b], squared[f, b]), expected)
            single = one.covariance(across[b], within[b], torch.tensor([1, 2]))
            torch.testing.assert_close(joint[f, b], single)
            torch.testing.assert_close(found.log_evidence[f, b], one.log_evidence)

    def test_gradients(self) -> None:
        found, covariances, _, _ = regression()
        across = covariances[:, T:, :T].clone().requires_grad_()
        within = covariances[:, T:, T:].clone().requires_grad_()
        members = torch.tensor([0, 3])
        assert torch.autograd.gradcheck(
            lambda a, w: (
                *found.predict(a, w.diagonal(dim1=-2, dim2=-1)),
                found.covariance(a, w, members),
            ),
            (across, within),
        )
