"""The kernel as GPyTorch and BoTorch use it; test_host_conformance has GPyTorch's own tests."""

from typing import Any

import pytest
import torch
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from cases import as_rows, random_clouds
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor

from gp_distributions import (
    DistributionKernel,
    PointClouds,
    PrincipalDistance,
    SlicedWasserstein,
    SlicedWassersteinKernel,
)
from gp_distributions.kernels import Matern52, Polynomial, RationalQuadratic

ROWS = as_rows(random_clouds(9, sizes=(3, 8)), atoms=8)
OTHERS = as_rows(random_clouds(5, seed=1, sizes=(3, 8)), atoms=8)


def make(profile: Any = "gaussian", **options: Any) -> DistributionKernel:
    distance = {name: options.pop(name) for name in ("p", "center", "seed") if name in options}
    return DistributionKernel(
        SlicedWasserstein(2, num_slices=7, num_quantiles=9, **distance), profile, **options
    ).double()


def dense(kernel: Kernel, *args: Tensor) -> Tensor:
    return kernel(*args).to_dense().detach()


class TestFormula:
    def test_lengthscales_keep_their_digits(self) -> None:
        kernel = SlicedWassersteinKernel(2).double()
        kernel.lengthscale = 0.8
        assert float(kernel.lengthscale.detach()) == pytest.approx(0.8, rel=1e-15)

    @pytest.mark.parametrize("p", [1, 2])
    def test_radial_profiles_take_the_distance_in_lengthscales(self, p: int) -> None:
        kernel = make("matern52", p=p)
        kernel.lengthscale = 1.7
        length = float(kernel.lengthscale.detach())
        expected = Matern52()(kernel.distance.squared(ROWS, OTHERS) / length**2)
        torch.testing.assert_close(dense(kernel, ROWS, OTHERS), expected)
        assert kernel.is_stationary

    @pytest.mark.parametrize("center", [False, True])
    def test_linear_is_the_inner_product_of_features(self, center: bool) -> None:
        """The zero Dirac, which is the origin, has zero features."""
        kernel = make("linear", center=center)
        kernel.lengthscale = 1.7
        left, right = kernel.distance.embed(ROWS), kernel.distance.embed(OTHERS)
        for expected, actual in (
            (left @ right.T, dense(kernel, ROWS, OTHERS)),
            (left @ left.T, dense(kernel, ROWS)),
        ):
            # The result is a difference of squares, whose errors are relative to the largest square.
            atol = 1e-12 * float(left.square().sum(-1).max())
            torch.testing.assert_close(actual, expected / 1.7**2, rtol=1e-6, atol=atol)
        assert not kernel.is_stationary

    def test_polynomial_is_a_power_of_the_inner_product(self) -> None:
        kernel = make(Polynomial(3, offset=0.5))
        left, right = kernel.distance.embed(ROWS), kernel.distance.embed(OTHERS)
        offset = kernel.profile.offset.detach()
        torch.testing.assert_close(dense(kernel, ROWS, OTHERS), (offset + left @ right.T) ** 3)

    def test_named_kernel_is_its_distance_and_profile(self) -> None:
        options: dict[str, Any] = {"p": 1, "num_slices": 7, "num_quantiles": 9, "center": True}
        named = SlicedWassersteinKernel(
            3, profile="cauchy", seed=5, lengthscale_constraint=Interval(0.5, 2.0), **options
        ).double()
        plain = DistributionKernel(SlicedWasserstein(3, seed=5, **options), "cauchy").double()
        rows = as_rows(random_clouds(6, dim=3))
        named.lengthscale = plain.lengthscale = 1.3
        torch.testing.assert_close(dense(named, rows), dense(plain, rows))
        assert isinstance(named.raw_lengthscale_constraint, Interval)
        assert SlicedWassersteinKernel(2, num_quantiles=None).distance.num_quantiles is None


class TestBatches:
    @pytest.fixture(params=["gaussian", "linear", "rational_quadratic"])
    def kernel(self, request: pytest.FixtureRequest) -> DistributionKernel:
        kernel = make(request.param, batch_shape=torch.Size([2, 3]))
        kernel.lengthscale = 0.5 + torch.arange(6).double().reshape(2, 3, 1, 1)
        if request.param == "rational_quadratic":
            kernel.profile.alpha = 0.3 + torch.arange(6).double().reshape(2, 3, 1, 1)
        return kernel

    def single(self, kernel: DistributionKernel, i: int, j: int) -> DistributionKernel:
        single = make(type(kernel.profile)())
        single.lengthscale = kernel.lengthscale.detach()[i, j]
        if isinstance(kernel.profile, RationalQuadratic):
            single.profile.alpha = kernel.profile.alpha.detach()[i, j]
        return single

    @pytest.mark.parametrize("batched_rows", [False, True])
    def test_have_parameters_of_their_own(
        self, kernel: DistributionKernel, batched_rows: bool
    ) -> None:
        assert kernel.lengthscale.shape == (2, 3, 1, 1)
        x1, x2 = ROWS, OTHERS
        if batched_rows:
            x1 = torch.stack([ROWS.roll(k, 0) for k in range(6)]).unflatten(0, (2, 3))
        together, diagonal = dense(kernel, x1, x2), kernel(x1[..., :5, :], x2, diag=True).detach()
        for i in range(2):
            for j in range(3):
                single = self.single(kernel, i, j)
                rows = x1[i, j] if batched_rows else x1
                # Setting a lengthscale may pass through single precision.
                expected = dense(single, rows, x2)
                torch.testing.assert_close(together[i, j], expected, rtol=1e-6, atol=1e-6)
                torch.testing.assert_close(
                    diagonal[i, j], expected.diagonal(), rtol=1e-6, atol=1e-6
                )

    def test_parts_and_expansions_share_the_distance(self, kernel: DistributionKernel) -> None:
        together, wide = dense(kernel, ROWS), kernel.expand_batch(torch.Size([4, 2, 3]))
        for part, expected in (
            (kernel[1], together[1]),
            (kernel[1, 2], together[1, 2]),
            (wide, together.expand(4, 2, 3, -1, -1)),
        ):
            assert part.distance is kernel.distance
            assert part.batch_shape == expected.shape[:-2]
            torch.testing.assert_close(dense(part, ROWS), expected)
        assert kernel.lengthscale.shape == (2, 3, 1, 1)


def test_several_lengthscales_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ard_num_dims.* use PrincipalDistance\(distance\)"):
        make(ard_num_dims=2)
    assert make(ard_num_dims=None).lengthscale.shape == (1, 1)


def test_principal_components_have_lengthscales() -> None:
    rows = PointClouds(torch.randn(12, 9, 2, dtype=torch.float64)).pack()
    distance = PrincipalDistance(SlicedWasserstein(2, num_slices=9), num_components=4)
    distance.adapt(rows)
    batch_shape = torch.Size([2])
    kernel = DistributionKernel(distance, batch_shape=batch_shape).double()
    expected = MaternKernel(2.5, ard_num_dims=4, batch_shape=batch_shape).double()
    known = get_covar_module_with_dim_scaled_prior(4, batch_shape=batch_shape)
    torch.testing.assert_close(kernel.lengthscale, known.lengthscale.double())
    assert kernel.lengthscale_prior.loc == known.lengthscale_prior.loc
    assert kernel.lengthscale_prior.scale == known.lengthscale_prior.scale
    values = torch.rand(2, 1, 4, dtype=torch.float64) + 0.5
    kernel.lengthscale, expected.lengthscale = values, values
    features = distance.embed(rows)
    for found, same in (
        (kernel(rows), expected(features)),
        (kernel(rows[:5], rows), expected(features[:5], features)),
    ):
        torch.testing.assert_close(found.to_dense(), same.to_dense())
    torch.testing.assert_close(
        kernel(rows, rows.roll(1, 0), diag=True),
        kernel(rows, rows.roll(1, 0)).to_dense().diagonal(dim1=-1, dim2=-2),
    )
    weights = torch.randn(2, 12, 12, dtype=torch.float64)
    sums = [(k.to_dense() * weights).sum() for k in (kernel(rows), expected(features))]
    found, same = (
        torch.autograd.grad(value, k.raw_lengthscale)[0] * k.lengthscale.detach() ** power
        for value, k, power in zip(sums, (kernel, expected), (0, 1), strict=True)
    )
    # The raw parameters are the logarithm of the lengthscale, and the inverse of softplus.
    same = same / torch.special.expit(expected.raw_lengthscale.detach())
    torch.testing.assert_close(found, same)
    assert DistributionKernel(distance, ard_num_dims=1).lengthscale.shape == (1, 1)
    with pytest.raises(ValueError, match="Expected ard_num_dims=1 for the profile Linear"):
        DistributionKernel(distance, "linear")
