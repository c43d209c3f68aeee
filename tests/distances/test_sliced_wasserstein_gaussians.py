"""Sliced Wasserstein of Gaussians against quadrature, clouds, and pairs known in closed form."""

import math
from typing import Any

import mpmath
import pytest
import torch
from cases import randn
from torch import Tensor

from gp_distributions import SlicedWasserstein
from gp_distributions.measures.gaussians import Gaussians
from gp_distributions.numerics import quantiles

# Rounding error of a Gram matrix, relative to the largest squared distance.
TOLERANCE = 1e-12


def make(dim: int = 3, *, p: int = 2, center: bool = False, **options: Any) -> SlicedWasserstein:
    options = {"num_slices": 20, **options}
    return SlicedWasserstein(dim, inputs="gaussians", p=p, center=center, **options)


def gaussians(*batch_shape: int, dim: int = 3, seed: int = 0) -> Gaussians:
    """Gaussians in general position, with any orientation."""
    generator = torch.Generator().manual_seed(seed)
    mean = randn(*batch_shape, dim, seed=generator)
    factor = randn(*batch_shape, dim, dim, seed=generator)
    return Gaussians(mean, factor @ factor.mT / dim)


every_order = pytest.mark.parametrize(
    ("p", "center"), [(1, False), (1, True), (2, False), (2, True)]
)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    scale = float(expected.detach().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale)


# The closed form


def normal_distance(shift: float, stretch: mpmath.mpf, p: int) -> mpmath.mpf:
    """The integral of |Q - Q'|^p, a + s z - (b + t z), split where Q crosses Q'."""

    def gap(z: mpmath.mpf) -> mpmath.mpf:
        return abs(shift + stretch * z) ** p * mpmath.npdf(z)

    crossing = [-shift / stretch] if abs(shift) < 12 * abs(stretch) else []
    return mpmath.quad(gap, sorted([-12, -3, 0, 3, 12, *crossing]))


@every_order
@pytest.mark.parametrize("dim", [1, 3])
def test_agrees_with_quadrature_slice_by_slice(dim: int, p: int, center: bool) -> None:
    distance = make(dim, p=p, center=center, num_slices=5)
    made = gaussians(3, dim=dim)
    # One pair with the same covariance and one with the same mean.
    covariance = torch.stack([made.covariance[0], *made.covariance])
    mean = torch.stack([*made.mean, made.mean[2]])
    squared = distance.squared(Gaussians(mean, covariance).pack())
    with mpmath.workdps(25):
        for i, j in [(0, 1), (0, 2), (1, 3), (2, 3)]:
            slices = []
            for theta in distance.directions:
                s, t = (mpmath.sqrt(float(theta @ covariance[k] @ theta)) for k in (i, j))
                shift = float(theta @ (mean[i] - mean[j]))
                if center or p == 2:  # for p = 2 the means are exact, apart from the slices
                    shift = 0.0
                slices.append(normal_distance(shift, s - t, p))
            expected = float(mpmath.fsum(slices)) / len(slices)
            if p == 2 and not center:
                expected += float((mean[i] - mean[j]).square().sum()) / dim
            assert float(squared[i, j]) == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_point_masses_are_those_of_clouds() -> None:
    mean = gaussians(4).mean
    masses = Gaussians(mean, torch.zeros(4, 3, 3).double())
    clouds = torch.cat([mean, torch.ones(4, 1).double()], dim=-1)
    for p in (1, 2):
        expected = SlicedWasserstein(3, p=p, num_slices=20).squared(clouds)
        assert_same(make(p=p).squared(masses.pack()), expected)


# Gradients


@pytest.mark.parametrize(
    ("shift", "stretch", "by_shift", "by_stretch"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (0.3, 0.0, 1.0, 0.0),
        (-0.3, 0.0, -1.0, 0.0),
        (0.0, 0.3, 0.0, math.sqrt(2 / math.pi)),
        (0.0, -0.3, 0.0, -math.sqrt(2 / math.pi)),
        (1.0, 1e-300, 1.0, 0.0),
        (1e-300, 1.0, 0.0, math.sqrt(2 / math.pi)),
        (1e200, 1e-200, 1.0, 0.0),
    ],
)
def test_limits_of_the_distance_between_normal_distributions(
    shift: float, stretch: float, by_shift: float, by_stretch: float
) -> None:
    x1 = torch.tensor([[shift, stretch]], dtype=torch.float64, requires_grad=True)
    x2 = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    expected = max(abs(shift), math.sqrt(2 / math.pi) * abs(stretch))
    distances = quantiles.normal_wasserstein(x1, x2)
    assert float(distances.detach()) == pytest.approx(expected, rel=1e-15, abs=0)
    gradient1, gradient2 = torch.autograd.grad(distances.sum(), (x1, x2))
    assert gradient1.tolist() == [pytest.approx([by_shift, by_stretch], rel=1e-15, abs=1e-290)]
    assert torch.equal(gradient2, -gradient1)


def test_second_derivatives_of_the_distance_between_normal_distributions() -> None:
    x1, x2 = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)).double()
    inputs = (x1.requires_grad_(), x2.requires_grad_())
    assert torch.autograd.gradgradcheck(quantiles.normal_wasserstein, inputs)


@every_order
def test_a_variance_below_zero_by_rounding_counts_as_zero(p: int, center: bool) -> None:
    distance = make(2, p=p, center=center)
    flat = torch.tensor([[1.0, 2.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    rounded = flat.clone()
    rounded[0, 2:] -= torch.tensor([3e-16, 0, 0, 3e-16], dtype=torch.float64)
    mass = torch.tensor([[1.0, 2.0, 0, 0, 0, 0]], dtype=torch.float64)
    others = gaussians(3, dim=2).pack()
    for rows in (rounded.requires_grad_(), mass.requires_grad_()):
        squared = distance.squared(rows, others)
        (gradient,) = torch.autograd.grad(squared.sum(), rows)
        assert bool(squared.isfinite().all() and gradient.isfinite().all())
    # The root is off by sqrt(3e-16) on the few lines across the degenerate Gaussian.
    torch.testing.assert_close(
        distance.squared(rounded, others), distance.squared(flat, others), rtol=0, atol=1e-6
    )


# Invalid input


@every_order
def test_indefinite_covariances_are_refused(p: int, center: bool) -> None:
    rows = gaussians(4, dim=2).pack()
    rows[2, 2:] = torch.tensor([1.0, 2.0, 2.0, 1.0])
    distance = make(2, p=p, center=center)
    message = r"\[\[1\.0, 2\.0\], \[2\.0, 1\.0\]\], whose variance along a line is -0\."
    with pytest.raises(ValueError, match=message):
        distance.squared(rows)
    with pytest.raises(ValueError, match="positive semi-definite covariances"):
        distance.squared(gaussians(4, dim=2).pack(), rows.requires_grad_())
    with pytest.raises(ValueError, match="along a line is nan"):
        distance.squared(gaussians(4, dim=2).pack() * torch.tensor([1, 1, 1, math.nan, 1, 1]))


@pytest.mark.parametrize("center", [False, True])
def test_gradient_where_only_rounding_differs_is_zero(center: bool) -> None:
    rows = gaussians(5).pack()
    others = rows * (1 + torch.finfo(rows.dtype).eps)
    rows.requires_grad_()
    distance = make(p=1, center=center)
    squared = distance.squared(rows, others)
    assert float(squared.detach().diagonal().max()) > 0
    for values in (squared.diagonal(), distance.squared(rows, others, diag=True)):
        (gradient,) = torch.autograd.grad(values.sum(), rows)
        assert torch.equal(gradient, torch.zeros_like(rows))
