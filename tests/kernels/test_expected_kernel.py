"""Averages of kernels of atoms: pairs of atoms, closed forms under Gaussians, random features."""

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from gp_distributions import Gaussians, PointClouds
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels import ExpectedKernel
from gp_distributions.kernels import expected_kernel as module


def smooth() -> Kernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)) + LinearKernel(ard_num_dims=2)
    kernel = kernel.double()
    kernel.kernels[0].base_kernel.lengthscale = torch.tensor([0.7, 1.3])
    kernel.kernels[0].outputscale = 1.7
    kernel.kernels[1].variance = torch.tensor([0.3, 0.6])
    return kernel


def clouds(num: int = 5, seed: int = 0) -> PointClouds:
    rng = np.random.default_rng(seed)
    bags = [rng.normal(size=(size, 2)) for size in range(1, num + 1)]
    return PointClouds.from_list(bags, [rng.uniform(0.1, 1, len(bag)) for bag in bags])


def dense(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    parts = kernel.kernels if isinstance(kernel, AdditiveKernel) else [kernel]
    values: Tensor = sum(part(x, y).to_dense() for part in parts)
    return values


def by_pairs(kernel: Kernel, X: PointClouds, Y: PointClouds) -> Tensor:
    """Average the kernel over all pairs of atoms, pair by pair of clouds."""
    with torch.no_grad():
        rows = [[x.weights @ dense(kernel, x.points, y.points) @ y.weights for y in Y] for x in X]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("base", [smooth(), MaternKernel(1.5).double()], ids=["rbf", "matern"])
def test_is_the_average_over_pairs_of_atoms(base: Kernel) -> None:
    X, Y = clouds(), clouds(3, seed=1)
    kernel = ExpectedKernel(base, 2)
    expected = by_pairs(base, X, Y)
    assert torch.allclose(kernel.forward(X.pack(), Y.pack()), expected, rtol=1e-12, atol=1e-14)
    diagonal = by_pairs(base, X, X).diagonal()
    assert torch.allclose(kernel(X.pack(), diag=True), diagonal, rtol=1e-12)


def test_atoms_are_measured_about_a_centre_in_units() -> None:
    X, centre, scale = (
        clouds(),
        torch.tensor([1.0, -2.0]).double(),
        torch.tensor([3.0, 0.1]).double(),
    )
    kernel = ExpectedKernel(smooth(), 2, centre=centre, scale=scale)
    scaled = PointClouds((X.points - centre) / scale, X.weights)
    expected = ExpectedKernel(smooth(), 2)(scaled.pack()).to_dense()
    assert torch.allclose(kernel(X.pack()).to_dense(), expected, rtol=1e-12)


def test_gaussians_agree_with_quadrature() -> None:
    """Gauss-Hermite nodes are weighted atoms, whose averages of smooth functions are nearly exact."""
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(4, 2, generator=generator).double()
    root = 0.4 * torch.randn(4, 2, 2, generator=generator).double()
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.hermite_e.hermegauss(30))
    grid = torch.cartesian_prod(nodes, nodes)
    atoms = mean.unsqueeze(-2) + grid @ root.mT
    masses = torch.outer(weights, weights).flatten().expand(4, -1)
    rows = Gaussians(mean, root @ root.mT).pack()
    quadrature = PointClouds(atoms, masses).pack()
    kernel = ExpectedKernel(smooth(), 2, inputs="gaussians")
    of_clouds = ExpectedKernel(smooth(), 2)
    expected = of_clouds(quadrature).to_dense()
    assert torch.allclose(kernel(rows).to_dense(), expected, rtol=1e-9)
    assert torch.allclose(kernel(rows, diag=True), expected.diagonal(), rtol=1e-9)
    assert torch.allclose(kernel.variances(rows), of_clouds.variances(quadrature), rtol=1e-9)


def test_random_features_converge() -> None:
    rows = clouds(6).pack()
    exact = ExpectedKernel(smooth(), 2)(rows).to_dense()
    errors = [
        (ExpectedKernel(smooth(), 2, num_features=count)(rows).to_dense() - exact)
        .abs()
        .max()
        .item()
        for count in (2**6, 2**10, 2**14)
    ]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 4 * 1.7 / 2**7  # four standard errors of a mean of 2^14 terms


@pytest.mark.parametrize("options", [{}, {"num_features": 16}, {"inputs": "gaussians"}])
def test_batches(options: dict[str, Any]) -> None:
    kernel = ExpectedKernel(smooth(), 2, **options)
    both = clouds(4), clouds(4, seed=2)
    if options.get("inputs") == "gaussians":
        both = Gaussians.from_clouds(both[0]), Gaussians.from_clouds(both[1])
    rows, others = both[0].pack(), both[1].pack()
    batch = torch.stack([rows, rows.flip(0), others])
    for first, second in ((batch, rows), (rows, batch), (batch, batch.flip(-2)), (batch, batch)):
        expected = torch.stack(
            [
                kernel.forward(a, b)
                for a, b in zip(first.expand(3, -1, -1), second.expand(3, -1, -1), strict=True)
            ]
        )
        assert torch.allclose(kernel.forward(first, second), expected, rtol=1e-12, atol=1e-14)
    diagonal = kernel(batch, diag=True)
    assert torch.allclose(diagonal, kernel(batch).to_dense().diagonal(dim1=-1, dim2=-2))


@pytest.mark.parametrize("num_features", [None, 16])
def test_chunks_have_the_same_values_and_gradients(
    num_features: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate() -> list[Tensor]:
        kernel = ExpectedKernel(smooth(), 2, num_features=num_features)
        rows = clouds(5).pack().requires_grad_()
        value = kernel(rows).to_dense().sum() + kernel(rows, diag=True).sum()
        slopes, *rest = torch.autograd.grad(value, [rows, *kernel.parameters()])
        present = clouds(5).weights.repeat_interleave(3, -1) > 0  # padding may have any gradient
        return [value, slopes[present], *rest]

    expected = evaluate()
    monkeypatch.setattr(module, "_HELD", 40)
    torch.testing.assert_close(evaluate(), expected, rtol=1e-10, atol=1e-12)


def test_gradients() -> None:
    kernel = ExpectedKernel(smooth(), 2)
    points = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    rows = PointClouds(points).pack().requires_grad_()
    assert torch.autograd.gradcheck(lambda r: kernel.forward(r, r), rows)


@pytest.mark.parametrize("options", [{"inputs": "gaussians"}, {"num_features": 8}])
def test_kernels_without_closed_form_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"sum of RBFKernel, LinearKernel and ConstantKernel, .* MaternKernel"
    ):
        ExpectedKernel(MaternKernel(), 2, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_features: expected an integer >= 1, got 0"):
        ExpectedKernel(smooth(), 2, num_features=0)


def test_features_have_the_derivatives_of_autograd() -> None:
    """Rows that require a gradient take another path, which autograd differentiates."""
    slopes = []
    for tracked in (False, True):
        kernel = ExpectedKernel(smooth(), 2, num_features=16)
        rows = clouds(5).pack().requires_grad_(tracked)
        values = kernel(rows).to_dense()
        total = (values * torch.arange(25.0).reshape(5, 5)).sum()
        slopes.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(total, kernel.parameters())])
        )
    assert torch.allclose(*slopes, rtol=1e-10)


def test_held_features_follow_the_hyperparameters() -> None:
    kernel, rows = ExpectedKernel(smooth(), 2, num_features=16), EmbeddedRows(clouds().pack())
    scaled, linear = kernel.base_kernel.kernels
    scaled.base_kernel.raw_lengthscale.requires_grad_(False)
    for lengthscale, outputscale in ((0.5, 1.0), (0.5, 2.0), (0.8, 2.0)):
        scaled.base_kernel.lengthscale, scaled.outputscale = lengthscale, outputscale
        linear.variance = torch.tensor([outputscale, 0.1])
        found = kernel.forward(rows, rows)
        assert torch.equal(found, kernel.forward(rows.rows, rows.rows))
    (gradient,) = torch.autograd.grad(found.sum(), [linear.raw_variance])
    assert bool((gradient != 0).any())
