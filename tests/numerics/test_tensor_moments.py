"""Inner products of moment features are those of polynomial kernels."""

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import PolynomialKernel, gaussian_expectation
from gp_distributions.numerics.mean_embeddings import inner_products
from gp_distributions.numerics.random_features import moment_features
from gp_distributions.rows.gaussians import join_gaussians


def mixtures(num: int, size: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(num, size, dim, generator=generator, dtype=torch.float64)
    weights = torch.rand(num, size, generator=generator, dtype=torch.float64)
    root = torch.randn(num, size, dim, dim, generator=generator, dtype=torch.float64)
    return points, weights / weights.sum(-1, keepdim=True), root @ root.mT


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_inner_products_of_mixtures(dim: int, degree: int) -> None:
    points, weights, covariance = mixtures(5, 3, dim)
    features = moment_features(points, weights, degree, covariance)
    kernel = gaussian_expectation(PolynomialKernel(degree), dim)
    atoms = join_gaussians(points, covariance)
    assert kernel is not None
    expected = inner_products(kernel, atoms, weights, atoms, weights)
    torch.testing.assert_close(features @ features.T, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_gradient(degree: int) -> None:
    tensors = [t.requires_grad_() for t in mixtures(2, 3, 2)]

    def features(points: Tensor, weights: Tensor, covariance: Tensor) -> Tensor:
        return moment_features(points, weights, degree, (covariance + covariance.mT) / 2)

    assert torch.autograd.gradcheck(features, tensors)
