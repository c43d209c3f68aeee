"""Embedding kernels against their formulas, pair by pair."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from gp_distributions.numerics.embedding_kernels import EMBEDDING_KERNELS, IsotropicKernel


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


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
        x = (random(6, 2) * 2**10).round() / 2**10
        x = torch.cat([x, x[:2]])
        moved = (x + offset).requires_grad_(tracked)
        actual = EMBEDDING_KERNELS[name].matrix(moved, moved).detach()
        torch.testing.assert_close(actual, by_formula(name, x, x), rtol=1e-12, atol=1e-13)

    @pytest.mark.parametrize("tracked", [False, True])
    def test_groups_far_apart(self, name: str, tracked: bool) -> None:
        """Squares that are 1e8 times larger do not reduce the accuracy within a group."""
        x = torch.cat([random(4, 2), random(4, 2, seed=1) + 2.0**14])
        x = ((x * 2**10).round() / 2**10).requires_grad_(tracked)
        expected = by_formula(name, x, x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            actual = EMBEDDING_KERNELS[name].matrix(x, x).detach()
        atol = 1e-13 * float(expected.abs().max())
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=max(atol, 1e-300))

    def test_gradient_of_coincident_points_is_zero(self, name: str) -> None:
        x = random(1, 2).repeat(3, 1).requires_grad_()
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
