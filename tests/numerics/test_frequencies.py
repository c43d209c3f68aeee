"""Random Fourier features: correct on average, and better than independent frequencies."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS, IsotropicKernel
from gp_distributions.numerics.random_features import (
    fourier_features,
    orthogonal_frequencies,
    quasi_random_frequencies,
)

METHODS = {"orthogonal": orthogonal_frequencies, "quasi_random": quasi_random_frequencies}
KERNELS = {
    name: kernel
    for name, kernel in EMBEDDING_KERNELS.items()
    if isinstance(kernel, IsotropicKernel) and name != "energy"
}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def independent(kernel: IsotropicKernel, dim: int, count: int, *, seed: int) -> Tensor:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((count, dim))
    return torch.from_numpy(normal * kernel.mixing(rng.random(count))[:, None])


def mean_square_error(kernel: IsotropicKernel, frequencies: Tensor, points: Tensor) -> float:
    single = points.new_ones(len(points), 1)
    features = fourier_features(points.unsqueeze(1), single, frequencies)
    return float((features @ features.T - kernel.matrix(points, points)).square().mean())


@pytest.mark.parametrize("sample", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dim", [1, 3])
class TestFrequencies:
    def test_error_falls_like_the_inverse_root_or_faster(
        self, sample: object, name: str, dim: int
    ) -> None:
        """Cosines have a variance of at most 1/2, so 16 times as many give a quarter of the error."""
        points, kernel = random(40, dim), KERNELS[name]
        errors = []
        for count in (64, 1024):
            squares = [
                mean_square_error(kernel, sample(kernel, dim, count, seed=seed), points)  # type: ignore[operator]
                for seed in range(8)
            ]
            errors.append(math.sqrt(np.mean(squares)))
            assert errors[-1] <= math.sqrt(0.5 / count)
        # The mean of eight squares is known to a factor of about 1.5.
        assert errors[1] <= errors[0] / 4 * 1.5

    def test_no_worse_than_independent_ones(self, sample: object, name: str, dim: int) -> None:
        points, kernel = random(40, dim), KERNELS[name]
        ours, theirs = (
            np.mean(
                [
                    mean_square_error(kernel, draw(kernel, dim, 60, seed=s), points)
                    for s in range(20)
                ]
            )  # type: ignore[operator]
            for draw in (sample, independent)
        )
        assert ours <= theirs


@pytest.mark.parametrize(("name", "degrees"), [("laplace", 1), ("matern32", 3), ("matern52", 5)])
@pytest.mark.parametrize("sample", METHODS.values(), ids=METHODS)
def test_matern_frequencies_have_a_t_distribution(sample: object, name: str, degrees: int) -> None:
    """Each coordinate has a t distribution; signs do not matter."""
    absolute = sample(KERNELS[name], 3, 2000)[:, 1].abs().numpy()  # type: ignore[operator]
    folded = scipy.stats.t(degrees)
    assert scipy.stats.kstest(absolute, lambda x: 2 * folded.cdf(x) - 1).pvalue > 1e-3


def test_blocks_are_orthogonal() -> None:
    frequencies = orthogonal_frequencies(KERNELS["gaussian"], 4, 10)
    for block in frequencies.split(4):
        gram = block @ block.T
        torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)


def test_features_of_gaussians() -> None:
    """Features of a mixture against the average over the nodes of a quadrature."""
    generator = torch.Generator().manual_seed(0)
    mean, weights = random(1, 3, 2), torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    root = 0.5 * torch.randn(1, 3, 2, 2, generator=generator, dtype=torch.float64)
    frequencies = random(5, 2, seed=1)
    z, w = np.polynomial.hermite_e.hermegauss(25)
    normal = torch.cartesian_prod(*[torch.from_numpy(z)] * 2)
    each = torch.cartesian_prod(*[torch.from_numpy(w / w.sum())] * 2).prod(-1)
    points = (mean.unsqueeze(-2) + normal @ root.mT).flatten(1, 2)
    atoms = (weights.unsqueeze(-1) * each).flatten(1, 2)
    actual = fourier_features(mean, weights, frequencies, root @ root.mT)
    torch.testing.assert_close(
        actual, fourier_features(points, atoms, frequencies), rtol=1e-9, atol=1e-12
    )


def test_gradient() -> None:
    points, weights = random(2, 3, 2).requires_grad_(), random(2, 3, seed=1).requires_grad_()
    covariance = (random(2, 3, 2, 2) @ random(2, 3, 2, 2).mT).requires_grad_()
    frequencies = random(4, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(fourier_features, (points, weights, frequencies, covariance))
