"""Fourier features, correct on average; landmark features, exact with all atoms."""

import numpy as np
import pytest
import scipy.stats
import torch
from cases import rand, randn
from scipy.cluster.vq import kmeans2
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import (
    EMBEDDING_KERNELS,
    EmbeddingKernel,
    IsotropicKernel,
)
from gp_distributions.numerics.mean_embeddings import inner_products
from gp_distributions.numerics.pairwise import squared_euclidean
from gp_distributions.numerics.random_features import (
    fourier_features,
    landmark_features,
    orthogonal_frequencies,
    quasi_random_frequencies,
    spread_landmarks,
)

METHODS = {"orthogonal": orthogonal_frequencies, "quasi_random": quasi_random_frequencies}
KERNELS = {
    name: kernel
    for name, kernel in EMBEDDING_KERNELS.items()
    if isinstance(kernel, IsotropicKernel) and name != "energy"
}


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
    points, kernel = randn(40, dim), KERNELS[name]
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


def clouds(num: int, size: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = randn(num, size, 2, seed=generator)
    weights = rand(num, size, seed=generator)
    return points, weights / weights.sum(-1, keepdim=True)


def exact(kernel: EmbeddingKernel, points: Tensor, weights: Tensor) -> Tensor:
    products = inner_products(kernel, points, weights, points, weights, symmetric=True)
    squares = products.diagonal()
    return squares.unsqueeze(-1) + squares - 2 * products


@pytest.mark.parametrize("name", EMBEDDING_KERNELS)
class TestFeatures:
    def test_exact_with_all_atoms_as_landmarks(self, name: str) -> None:
        """Exact up to the jitter, 1e-10 of the mean diagonal."""
        kernel, (points, weights) = EMBEDDING_KERNELS[name], clouds(6, 4)
        landmarks = points.flatten(0, 1)
        features = landmark_features(kernel, landmarks, points, weights)
        diagonal = kernel.matrix(landmarks, landmarks).diagonal().mean()
        if name == "energy":
            diagonal = 2 * (landmarks - landmarks.mean(0)).norm(dim=-1).mean()
        torch.testing.assert_close(
            squared_euclidean(features, features),
            exact(kernel, points, weights),
            rtol=1e-9,
            atol=2.5e-10 * float(diagonal),
        )

    def test_never_overestimates(self, name: str) -> None:
        kernel, (points, weights) = EMBEDDING_KERNELS[name], clouds(12, 20)
        features = landmark_features(kernel, points[0, :5], points, weights)
        excess = squared_euclidean(features, features) - exact(kernel, points, weights)
        assert float(excess.max()) <= 1e-12

    def test_gradient(self, name: str) -> None:
        kernel, (points, weights) = EMBEDDING_KERNELS[name], clouds(3, 4)
        landmarks = spread_landmarks(points.flatten(0, 1), 3).requires_grad_()
        if name == "linear":
            landmarks = landmarks.detach()[:2].requires_grad_()  # three are dependent
        assert torch.autograd.gradcheck(
            lambda *t: landmark_features(kernel, *t),
            (landmarks, points.requires_grad_(), weights.requires_grad_()),
        )


def test_landmarks_are_all_atoms_where_they_are_not_more() -> None:
    atoms = clouds(1, 5)[0][0]
    chosen = spread_landmarks(atoms.repeat(3, 1), 8)
    assert chosen.shape == (8, 2)
    assert torch.equal(chosen.unique(dim=0), atoms.unique(dim=0))


@pytest.mark.parametrize("dim", [1, 3])
def test_landmarks_are_those_of_scipy(dim: int) -> None:
    normal = randn(200, dim)
    for atoms in (normal, normal[:20].repeat(9, 1)):
        centres, _ = kmeans2(atoms.numpy(), 12, minit="++", rng=3)
        assert torch.equal(spread_landmarks(atoms, 12, seed=3), torch.from_numpy(centres))
