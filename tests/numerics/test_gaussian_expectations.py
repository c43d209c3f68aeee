"""Kernels between Gaussians against quadrature, which is exact for polynomials."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS, gaussian_expectation
from gp_distributions.rows.gaussians import join_gaussians, split_gaussians

CLOSED = ["gaussian", "linear", "polynomial2", "polynomial3"]


def gaussians(*shape: int, dim: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(*shape, dim, generator=generator, dtype=torch.float64)
    root = 0.5 * torch.randn(*shape, dim, dim, generator=generator, dtype=torch.float64)
    return join_gaussians(mean, root @ root.mT)


def quadrature(name: str, one: Tensor, other: Tensor, dim: int, nodes: int) -> float:
    """Average of the kernel over all pairs of nodes of both Gaussians."""

    def rule(gaussian: Tensor) -> tuple[Tensor, Tensor]:
        z, w = np.polynomial.hermite_e.hermegauss(nodes)
        normal = torch.tensor(list(itertools.product(z, repeat=dim)))
        weights = torch.tensor(list(itertools.product(w / w.sum(), repeat=dim))).prod(-1)
        mean, covariance = split_gaussians(gaussian, dim)
        return mean + normal @ torch.linalg.cholesky(covariance).mT, weights

    (x, a), (y, b) = rule(one), rule(other)
    return float(a @ EMBEDDING_KERNELS[name].matrix(x, y) @ b)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("dim", [1, 2])
def test_quadrature(name: str, dim: int) -> None:
    kernel = gaussian_expectation(EMBEDDING_KERNELS[name], dim)
    x, y = gaussians(3, dim=dim), gaussians(2, dim=dim, seed=1)
    assert kernel is not None
    actual = kernel.matrix(x, y)
    # Degree 3 needs two nodes in each point; the exponential needs many.
    nodes = 30 if name == "gaussian" else 3
    expected = [[quadrature(name, a, b, dim, nodes) for b in y] for a in x]
    rtol = 1e-8 if name == "gaussian" else 1e-12
    torch.testing.assert_close(
        actual, torch.tensor(expected, dtype=torch.float64), rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_gradient(name: str, spread: float) -> None:
    """Gradients in means and covariances, including covariances of zero."""
    kernel = gaussian_expectation(EMBEDDING_KERNELS[name], 2)
    assert kernel is not None

    def matrix(x: Tensor, y: Tensor) -> Tensor:
        rows = []
        for gaussian in (x, y):
            mean, covariance = split_gaussians(gaussian, 2)
            rows.append(join_gaussians(mean, (covariance + covariance.mT) / 2))
        return kernel.matrix(*rows)

    x, y = gaussians(2), gaussians(3, seed=1)
    x[:, 2:] *= spread
    assert torch.autograd.gradcheck(matrix, (x.requires_grad_(), y.requires_grad_()))
