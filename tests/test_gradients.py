"""Gradients of kernels in points and lengthscale agree with finite differences, and are finite.

Those of distances are covered by their own test case.
"""

import pytest
import torch
from cases import CLOUDS, GAUSSIANS, KERNELS, Inputs
from torch import Tensor

from gp_distributions.rows.clouds import join_rows

# Kernels on clouds with every profile; smooth and root ones of other distances are covered there too.
PROFILED = [n for n in KERNELS if n.rpartition("-")[0] in ("sw1", "sw2")]


def stacked(inputs: Inputs, num: int, seed: int) -> tuple[Tensor, Tensor]:
    points, weights = zip(*inputs.draw(num, seed=seed, sizes=(6, 6)), strict=True)
    return torch.stack(points), torch.stack(weights)


def joined(inputs: Inputs, points: Tensor, weights: Tensor) -> Tensor:
    if inputs is GAUSSIANS:  # finite differences move each entry of a covariance alone
        mean, covariance = points[..., :2], points[..., 2:].unflatten(-1, (2, 2))
        points = torch.cat([mean, (covariance + covariance.mT).flatten(-2) / 2], dim=-1)
    return join_rows(points, weights) if inputs.weighted else points.flatten(-2)


def fixed_rows(inputs: Inputs, num: int, seed: int) -> Tensor:
    return joined(inputs, *stacked(inputs, num, seed))


@pytest.mark.parametrize("name", [n for n, case in KERNELS.items() if not case.inputs.labels])
def test_gradient_of_kernel_in_points(name: str) -> None:
    kernel, inputs = KERNELS[name]().double(), KERNELS[name].inputs
    points, weights = stacked(inputs, 3, 0)
    others = fixed_rows(inputs, 2, 1)

    def covariance(points: Tensor) -> Tensor:
        return kernel(joined(inputs, points, weights), others).to_dense()

    assert torch.autograd.gradcheck(covariance, points.requires_grad_(), fast_mode=True)


@pytest.mark.parametrize("name", PROFILED)
def test_gradient_of_kernel_in_lengthscale(name: str) -> None:
    kernel, inputs = KERNELS[name]().double(), KERNELS[name].inputs
    rows, others = fixed_rows(inputs, 3, 0), fixed_rows(inputs, 2, 1)

    def covariance(raw: Tensor) -> Tensor:
        return torch.func.functional_call(
            kernel, {"raw_lengthscale": raw}, (rows, others), {}
        ).to_dense()

    raw = kernel.raw_lengthscale.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(covariance, raw)


@pytest.mark.parametrize("position", ["coincident", "single atoms", "ties", "split", "padded"])
@pytest.mark.parametrize("name", PROFILED)
def test_gradients_are_finite_in_special_position(name: str, position: str) -> None:
    kernel = KERNELS[name]()
    points, weights = stacked(CLOUDS, 4, 0)
    if position == "coincident":
        points, weights = points[:1].repeat(4, 1, 1), weights[:1].repeat(4, 1)
    elif position == "single atoms":
        points, weights = points[:, :1], weights[:, :1]
    elif position == "ties":
        points = points.round()
        weights = torch.ones_like(weights)
    elif position == "split":
        points = points.repeat_interleave(2, dim=-2)
        weights = weights.repeat_interleave(2, dim=-1)
    else:
        weights = torch.cat([weights[..., :3], torch.zeros_like(weights[..., 3:])], dim=-1)
    rows = join_rows(points, weights).requires_grad_()
    for x2 in (rows, rows.detach().clone(), rows.detach().flip(0)):
        covariance = kernel(rows, x2).to_dense()
        gradients = torch.autograd.grad(
            covariance.sum(), [rows, *kernel.parameters()], allow_unused=True
        )
        assert all(bool(g.isfinite().all()) for g in gradients if g is not None)
