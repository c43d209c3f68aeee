"""Kernels without an outputscale get one in every model, and only those."""

import copy

import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel

from gp_distributions import (
    AggregateGP,
    ClassificationGP,
    DistributionGP,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
)
from gp_distributions.kernels.copies import with_outputscale

GENERATOR = torch.Generator().manual_seed(0)
X = PointClouds(
    torch.randn(24, 1, 2, generator=GENERATOR).double()
    + torch.randn(24, 6, 2, generator=GENERATOR).double()
)
Y = X.points.mean((1, 2)) + 0.1 * torch.randn(24, generator=GENERATOR).double()


def kernel() -> Kernel:
    return SlicedWassersteinKernel(2, num_slices=5, num_quantiles=5)


def test_a_fit_is_that_of_the_scaled_kernel() -> None:
    scaled = ScaleKernel(kernel())
    scaled.outputscale = 1.0
    found, expected = (fit(DistributionGP(X, Y, each)).predict(X) for each in (kernel(), scaled))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    fixed = ScaleKernel(kernel())
    fixed.outputscale = 1.0
    fixed.raw_outputscale.requires_grad_(False)
    without = fit(DistributionGP(X, Y, fixed))
    assert without.covar_module.outputscale.item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda each: DistributionGP(X, Y, each),
        lambda each: SharedKernelGP(X, Y, each),
        lambda each: SparseDistributionGP(X, Y, each, num_inducing=5),
        lambda each: ClassificationGP(X, Y > 0, each),
        lambda each: SparseClassificationGP(X, Y > 0, each, num_inducing=5),
    ],
)
def test_every_model_has_one(make: object) -> None:
    model = make(kernel())  # type: ignore[operator]
    assert isinstance(model.covar_module, ScaleKernel)
    assert model.covar_module.outputscale.item() == 1.0
    again = make(copy.deepcopy(model.covar_module))  # type: ignore[operator]
    assert not isinstance(again.covar_module.base_kernel, ScaleKernel)


def test_kernels_with_one_inside_stay() -> None:
    whole = ScaleKernel(kernel()) + kernel()
    assert with_outputscale(whole) is whole
    assert DistributionGP(X, Y, whole).covar_module is whole


def test_expected_kernels_have_it_inside() -> None:
    model = AggregateGP(X, Y, RBFKernel())
    assert isinstance(model.covar_module.base_kernel, ScaleKernel)
    assert torch.isfinite(fit(model).predict(X)[0]).all()
