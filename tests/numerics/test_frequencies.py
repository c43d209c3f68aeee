"""Random Fourier features: correct on average, and better than independent frequencies."""

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
def test_no_worse_than_independent_ones(sample: object, name: str, dim: int) -> None:
    points, kernel = random(40, dim), KERNELS[name]
    ours, theirs = (
        np.mean(
            [mean_square_error(kernel, draw(kernel, dim, 60, seed=s), points) for s in range(20)]
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
