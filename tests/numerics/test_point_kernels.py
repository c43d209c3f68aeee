"""Kernels on points that are given as functions or as GPyTorch kernels."""

import copy
import pickle
from collections.abc import Callable

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)

from gp_distributions.numerics.embedding_kernels import PointKernel

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
