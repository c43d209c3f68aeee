"""Kernels on points: built in, given as functions, and averaged over Gaussians."""

import copy
import itertools
import math
import pickle
import warnings
from collections.abc import Callable

import gpytorch
import numpy as np
import pytest
import torch
from cases import randn
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from scipy.integrate import quad
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import (
    EMBEDDING_KERNELS,
    IsotropicKernel,
    PointKernel,
    gaussian_expectation,
)
from gp_distributions.rows.layout import join_gaussians, split_gaussians


def matern52(r: float) -> float:
    return (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)


# Functions of the distance.
RADIAL: dict[str, Callable[[float], float]] = {
    "gaussian": lambda r: math.exp(-r * r / 2),
    "laplace": lambda r: math.exp(-r),
    "matern32": lambda r: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
    "matern52": matern52,
    "inverse_multiquadric": lambda r: 1 / math.sqrt(1 + r * r),
    "energy": lambda r: -r,
}
WITH_SPECTRUM = [name for name in RADIAL if name != "energy"]


def by_formula(name: str, x: Tensor, y: Tensor) -> Tensor:
    rows = [[RADIAL[name](math.dist(a, b)) for b in y.tolist()] for a in x.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", RADIAL)
class TestIsotropic:
    @pytest.mark.parametrize("tracked", [False, True])
    @pytest.mark.parametrize("offset", [0.0, 2.0**20])
    def test_far_from_the_origin_and_at_coincidence(
        self, name: str, offset: float, tracked: bool
    ) -> None:
        """Offset and points are exact in floating point, and so are their differences."""
        x = (randn(6, 2) * 2**10).round() / 2**10
        x = torch.cat([x, x[:2]])
        moved = (x + offset).requires_grad_(tracked)
        actual = EMBEDDING_KERNELS[name].matrix(moved, moved).detach()
        torch.testing.assert_close(actual, by_formula(name, x, x), rtol=1e-12, atol=1e-13)

    @pytest.mark.parametrize("tracked", [False, True])
    def test_groups_far_apart(self, name: str, tracked: bool) -> None:
        """Squares that are 1e8 times larger do not reduce the accuracy within a group."""
        x = torch.cat([randn(4, 2), randn(4, 2, seed=1) + 2.0**14])
        x = ((x * 2**10).round() / 2**10).requires_grad_(tracked)
        expected = by_formula(name, x, x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            actual = EMBEDDING_KERNELS[name].matrix(x, x).detach()
        atol = 1e-13 * float(expected.abs().max())
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=max(atol, 1e-300))

    def test_gradient_of_coincident_points_is_zero(self, name: str) -> None:
        x = randn(1, 2).repeat(3, 1).requires_grad_()
        for y in (x, x.detach()):
            (gradient,) = torch.autograd.grad(EMBEDDING_KERNELS[name].matrix(x, y).sum(), x)
            assert float(gradient.abs().max()) <= 1e-14


@pytest.mark.parametrize("name", WITH_SPECTRUM)
@pytest.mark.parametrize("squared", [0.01, 1.0, 9.0])
def test_kernel_is_the_mixture_of_gaussian_kernels(name: str, squared: float) -> None:
    kernel = EMBEDDING_KERNELS[name]
    assert isinstance(kernel, IsotropicKernel)

    def integrand(u: float) -> float:
        scale = float(kernel.mixing(torch.tensor([u], dtype=torch.float64).numpy())[0])
        return math.exp(-(scale**2) * squared / 2)

    value, error = quad(integrand, 0, 1, epsabs=1e-9, limit=200)
    assert abs(value - RADIAL[name](math.sqrt(squared))) <= max(10 * error, 1e-8)


X, Y = (
    torch.randn(2, count, 3, generator=torch.Generator().manual_seed(count)).double()
    for count in (5, 4)
)
KERNELS: dict[str, Callable[[], Kernel]] = {
    "rbf": RBFKernel,
    "ard": lambda: RBFKernel(ard_num_dims=3),
    "columns": lambda: ScaleKernel(MaternKernel(nu=1.5, active_dims=[2, 0])),
    "sum": lambda: RBFKernel(active_dims=[0]) + ScaleKernel(LinearKernel(active_dims=[1])),
    "product": lambda: RBFKernel(active_dims=[0, 1]) * PeriodicKernel(active_dims=[2]),
    "columns of a sum": lambda: ScaleKernel(
        gpytorch.kernels.AdditiveKernel(RBFKernel(active_dims=[1]), RBFKernel())
    ),
}


def varied(make: Callable[[], Kernel]) -> Kernel:
    kernel = make().double()
    for number, parameter in enumerate(kernel.parameters()):
        parameter.data += 0.3 * number + 0.1
    return kernel


@pytest.mark.parametrize("name", KERNELS)
def test_gpytorch_kernels_have_their_values(name: str) -> None:
    kernel = varied(KERNELS[name])
    expected = kernel(X, Y).to_dense().detach()
    point_kernel = PointKernel(kernel)
    torch.testing.assert_close(point_kernel.matrix(X, Y), expected)
    torch.testing.assert_close(point_kernel.matrix(X[0], Y[0]), expected[0])
    assert point_kernel.matrix(X.float(), Y.float()).dtype == torch.float32


def test_kernels_are_copied_and_fixed() -> None:
    kernel = varied(RBFKernel)
    point_kernel = PointKernel(kernel)
    expected = point_kernel.matrix(X, Y)
    assert not expected.requires_grad
    kernel.lengthscale = 7.0
    assert torch.equal(point_kernel.matrix(X, Y), expected)
    assert kernel.raw_lengthscale.requires_grad
    for other in (copy.deepcopy(point_kernel), pickle.loads(pickle.dumps(point_kernel))):
        assert torch.equal(other.matrix(X, Y), expected)


def test_shapes_are_checked() -> None:
    with pytest.raises(
        ValueError, match=r"Expected <lambda> .* shape \(2, 5, 4\) .* got \(2, 5, 1\)"
    ):
        PointKernel(lambda x, y: x[..., :1]).matrix(X, Y)
    with pytest.raises(ValueError, match="got ndarray"):
        PointKernel(lambda x, y: (x @ y.mT).numpy()).matrix(X, Y)
    with pytest.raises(ValueError, match=r"batch_shape=\(2,\)"):
        PointKernel(RBFKernel(batch_shape=torch.Size([2])))
    with pytest.raises(TypeError, match="a function of points or a GPyTorch kernel, got float"):
        PointKernel(0.5)  # type: ignore[arg-type]


CLOSED = ["gaussian", "linear", "polynomial2", "polynomial3"]


def gaussians(*shape: int, dim: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mean = randn(*shape, dim, seed=generator)
    root = 0.5 * randn(*shape, dim, dim, seed=generator)
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
