"""Profiles: formulas, slopes (also at zero) and parameters."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gp_distributions.kernels import (
    Cauchy,
    Exponential,
    Gaussian,
    InverseMultiquadric,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    PowerExponential,
    Profile,
    RationalQuadratic,
    StudentT,
)
from gp_distributions.kernels.profiles import PROFILES, make_profile

# The profile, its formula in r = d / lengthscale, and its slope in s = r^2 at s = 0. Slopes that would
# be infinite are 0 by convention.
RADIAL: dict[str, tuple[Profile, Callable[[float], float], float]] = {
    "gaussian": (Gaussian(), lambda r: math.exp(-(r**2) / 2), -1 / 2),
    "exponential": (Exponential(), lambda r: math.exp(-r), 0),
    "power_exponential": (PowerExponential(0.3), lambda r: math.exp(-(r**0.6)), 0),
    "power_exponential-1": (PowerExponential(1.0), lambda r: math.exp(-(r**2)), -1),
    "matern32": (
        Matern32(),
        lambda r: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
        -3 / 2,
    ),
    "matern52": (
        Matern52(),
        lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r),
        -5 / 6,
    ),
    "rational_quadratic": (
        RationalQuadratic(2.5).double(),
        lambda r: (1 + r**2 / 5) ** -2.5,
        -1 / 2,
    ),
    "cauchy": (Cauchy(), lambda r: 1 / (1 + r**2), -1),
    "student_t": (StudentT(1.4), lambda r: 1 / (1 + r**1.4), 0),
    "student_t-2": (StudentT(2.0), lambda r: 1 / (1 + r**2), -1),
    "inverse_multiquadric": (InverseMultiquadric(), lambda r: (1 + r**2) ** -0.5, -1 / 2),
}
INNER: dict[str, tuple[Profile, Callable[[float], float]]] = {
    "linear": (Linear(), lambda u: u),
    "polynomial": (Polynomial(3, offset=0.5).double(), lambda u: (0.5 + u) ** 3),
}
ALL = {name: entry[0] for name, entry in (*RADIAL.items(), *INNER.items())}


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class TestValues:
    @pytest.mark.parametrize("name", RADIAL)
    def test_of_radial_profiles(self, name: str) -> None:
        profile, formula, _ = RADIAL[name]
        radii = [0.0, 1e-8, 1e-3, 0.3, 1.0, 2.0, 7.0, 1e3]
        expected = doubles(*map(formula, radii))
        actual = profile(doubles(*radii).square())
        # Parameters pass through the inverse of a softplus in single precision.
        rtol = 1e-6 if name == "rational_quadratic" else 1e-13
        torch.testing.assert_close(actual.detach(), expected.view_as(actual), rtol=rtol, atol=0)
        assert profile.radial

    @pytest.mark.parametrize("name", INNER)
    def test_of_inner_products(self, name: str) -> None:
        profile, formula = INNER[name]
        products = [-3.0, -0.5, 0.0, 0.3, 2.0]
        expected = doubles(*map(formula, products))
        actual = profile(doubles(*products))
        torch.testing.assert_close(
            actual.detach(),
            expected.view_as(actual),
            rtol=1e-6,
            atol=1e-6 if name != "linear" else 0,
        )
        assert not profile.radial


class TestSlopes:
    @pytest.mark.parametrize("name", ALL)
    def test_agree_with_differences(self, name: str) -> None:
        s = doubles(0.1, 0.5, 1.0, 4.0)[:, None].requires_grad_()
        assert torch.autograd.gradcheck(ALL[name], s)
        assert torch.autograd.gradgradcheck(ALL[name], s)

    @pytest.mark.parametrize("name", RADIAL)
    def test_at_zero(self, name: str) -> None:
        profile, _, slope = RADIAL[name]
        s = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(profile(s).sum(), s, create_graph=True)
        assert float(first.detach()) == pytest.approx(slope, rel=1e-6, abs=0)
        if first.requires_grad:
            assert bool(torch.autograd.grad(first.sum(), s)[0].isfinite().all())

    @pytest.mark.parametrize("name", ["matern32", "matern52"])
    def test_near_zero_tend_to_that_at_zero(self, name: str) -> None:
        profile, _, slope = RADIAL[name]
        s = doubles(1e-16, 1e-12).requires_grad_()
        (first,) = torch.autograd.grad(profile(s).sum(), s)
        # The first relative correction is of the order of the square root of s.
        torch.testing.assert_close(first, torch.full_like(s, slope), rtol=3e-6, atol=0)

    def test_beside_zero_are_not_harmed_by_it(self) -> None:
        for profile, _, _ in RADIAL.values():
            s = doubles(0.0, 1.0)[:, None].requires_grad_()
            (together,) = torch.autograd.grad(profile(s).sum(), s)
            alone = doubles(1.0)[:, None].requires_grad_()
            (expected,) = torch.autograd.grad(profile(alone).sum(), alone)
            torch.testing.assert_close(together[1:], expected)


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(ValueError, match="no profile 'rbf'") as error:
        make_profile("rbf")
    assert all(name in str(error.value) for name in PROFILES)


class TestParameters:
    @pytest.mark.parametrize(
        ("make", "values", "message"),
        [
            (PowerExponential, [0.0, -0.5, 1.01, math.nan], "0 < beta <= 1"),
            (StudentT, [0.0, -1.0, 2.5, math.nan], "0 < t <= 2"),
            (Polynomial, [0, -1, 1.5], "positive integer"),
        ],
    )
    def test_are_bounded(self, make: Any, values: list[float], message: str) -> None:
        for value in values:
            with pytest.raises(ValueError, match=message):
                make(value)

    def test_an_offset_of_zero_is_fixed(self) -> None:
        profile = Polynomial(3, offset=0)
        products = doubles(-2.0, 0.0, 0.5)
        assert profile(products).tolist() == [-8.0, 0.0, 0.125]
        assert not list(profile.parameters())
        assert profile.offset == 0
        with pytest.raises(ValueError, match="fixed offset of 0"):
            profile.offset = 1.0
        batch = profile.expand_batch(torch.Size([2]))
        assert torch.equal(batch[0](products), profile(products))

    @pytest.mark.parametrize("profile", [RationalQuadratic(2.0), Polynomial(2)])
    def test_learned_ones_have_gradients(self, profile: Profile) -> None:
        profile = copy.deepcopy(profile).double()
        ((name, raw),) = profile.named_parameters()
        s = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)).double()

        def values(raw: Tensor) -> Tensor:
            return torch.func.functional_call(profile, {name: raw}, (s,))

        assert torch.autograd.gradcheck(values, raw.detach().clone().requires_grad_())
