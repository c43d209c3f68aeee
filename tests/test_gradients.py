"""Gradients in points, weights and lengthscale agree with finite differences, and are finite."""

import pytest
import torch
from cases import DISTANCES, KERNELS, random_clouds
from torch import Tensor

from gp_distributions import Distance, DistributionKernel
from gp_distributions.numerics.rows import join_rows, split_rows


@pytest.fixture(params=DISTANCES)
def distance(request: pytest.FixtureRequest) -> Distance:
    return DISTANCES[request.param]()


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> DistributionKernel:
    return KERNELS[request.param]()


def stacked(num: int, seed: int) -> tuple[Tensor, Tensor]:
    clouds = random_clouds(num, seed=seed, sizes=(6, 6))
    return torch.stack([p for p, _ in clouds]), torch.stack([w for _, w in clouds])


def test_gradient_in_points(distance: Distance) -> None:
    points, weights = stacked(3, 0)
    others = join_rows(*stacked(2, 1))

    def squared(points: Tensor) -> Tensor:
        return distance.squared(join_rows(points, weights), others)

    assert torch.autograd.gradcheck(squared, points.requires_grad_())


def test_gradient_in_weights(distance: Distance) -> None:
    points, weights = stacked(3, 0)
    others = join_rows(*stacked(2, 1))

    def squared(weights: Tensor) -> Tensor:
        return distance.squared(join_rows(points, weights), others)

    assert torch.autograd.gradcheck(squared, weights.requires_grad_())


def test_gradient_within_a_set(distance: Distance) -> None:
    rows = join_rows(*stacked(3, 0)).requires_grad_()
    assert torch.autograd.gradcheck(distance.squared, rows)


def test_gradient_of_the_diagonal(distance: Distance) -> None:
    rows, others = join_rows(*stacked(3, 0)).requires_grad_(), join_rows(*stacked(3, 1))
    assert torch.autograd.gradcheck(lambda x: distance.squared(x, others, diag=True), rows)


def test_gradient_in_weights_is_orthogonal_to_them(distance: Distance) -> None:
    rows = join_rows(*stacked(3, 0)).requires_grad_()
    others = join_rows(*stacked(3, 1))
    (gradient,) = torch.autograd.grad(distance.squared(rows, others).sum(), rows)
    inner = (split_rows(gradient, 2)[1] * split_rows(rows.detach(), 2)[1]).sum(-1)
    assert float(inner.abs().max()) <= 1e-12 * float(gradient.abs().max())


def test_gradient_with_a_fixed_side_is_that_with_both(distance: Distance) -> None:
    """The side without a gradient comes from the cache; what it is compared with must not care."""
    rows, others = join_rows(*stacked(3, 0)).requires_grad_(), join_rows(*stacked(4, 1))
    distance.squared(others)  # now cached
    (cached,) = torch.autograd.grad(distance.squared(rows, others).sum(), rows)
    (plain,) = torch.autograd.grad(
        distance.squared(rows, others.clone().requires_grad_()).sum(), rows
    )
    torch.testing.assert_close(cached, plain, rtol=1e-10, atol=1e-12)


def test_copies_of_a_row_keep_their_own_gradients(distance: Distance) -> None:
    row = join_rows(*stacked(1, 0))
    rows = row.repeat(3, 1).requires_grad_()
    others = join_rows(*stacked(3, 1))
    (gradient,) = torch.autograd.grad(distance.squared(rows, others)[1].sum(), rows)
    assert float(gradient[1].abs().max()) > 0
    assert torch.equal(gradient[[0, 2]], torch.zeros_like(gradient[[0, 2]]))


@pytest.mark.parametrize("which", ["points", "lengthscale"])
def test_gradient_of_kernel(kernel: DistributionKernel, which: str) -> None:
    points, weights = stacked(3, 0)
    others = join_rows(*stacked(2, 1))
    kernel.double()

    def in_points(points: Tensor) -> Tensor:
        return kernel(join_rows(points, weights), others).to_dense()

    def in_lengthscale(raw: Tensor) -> Tensor:
        rows = join_rows(points, weights)
        return torch.func.functional_call(
            kernel, {"raw_lengthscale": raw}, (rows, others), {}
        ).to_dense()

    if which == "points":
        assert torch.autograd.gradcheck(in_points, points.requires_grad_())
    else:
        raw = kernel.raw_lengthscale.detach().clone().requires_grad_()
        assert torch.autograd.gradcheck(in_lengthscale, raw)


@pytest.mark.parametrize("clouds", ["coincident", "single atoms", "ties", "split", "padded"])
def test_gradients_are_finite_in_special_position(kernel: DistributionKernel, clouds: str) -> None:
    points, weights = stacked(4, 0)
    if clouds == "coincident":
        points, weights = points[:1].repeat(4, 1, 1), weights[:1].repeat(4, 1)
    elif clouds == "single atoms":
        points, weights = points[:, :1], weights[:, :1]
    elif clouds == "ties":
        points = points.round()
        weights = torch.ones_like(weights)
    elif clouds == "split":
        points = points.repeat_interleave(2, dim=-2)
        weights = weights.repeat_interleave(2, dim=-1)
    else:
        weights = torch.cat([weights[..., :3], torch.zeros_like(weights[..., 3:])], dim=-1)
    rows = join_rows(points, weights).requires_grad_()
    kernel.requires_grad_()  # references too
    for x2 in (rows, rows.detach().clone(), rows.detach().flip(0)):
        covariance = kernel(rows, x2).to_dense()
        gradients = torch.autograd.grad(
            covariance.sum(), [rows, *kernel.parameters()], allow_unused=True
        )
        assert all(bool(g.isfinite().all()) for g in gradients if g is not None)
