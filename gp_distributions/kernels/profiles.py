r"""Profiles: functions of a Hilbert distance that are positive definite on every Hilbert space.

A radial profile is a function of :math:`s = d^2 / \ell^2`, the squared distance in squared
lengthscales. It is positive definite in every dimension if and only if it is completely monotone in
:math:`s` (Schoenberg 1938), as all those here are. The profiles of an inner product are functions of
the inner product about an origin instead.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import gpytorch
import torch
from gpytorch.constraints import Positive
from torch import Tensor


class Profile(gpytorch.Module, ABC):
    r"""A function of scaled squared distances, or of scaled inner products.

    Attributes:
        radial: ``True`` where the argument is :math:`d^2 / \ell^2`; ``False`` where it is the inner
            product about an origin, over :math:`\ell^2`.
    """

    radial: ClassVar[bool] = True

    @abstractmethod
    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``, of the same shape."""

    def __getitem__(self, index: Any) -> Profile:
        """The profile with its parameters indexed along their batch axes."""
        return self._with_parameters(lambda parameter: parameter[index])

    def expand_batch(self, batch_shape: torch.Size) -> Profile:
        """The profile with its parameters expanded to ``batch_shape``."""
        return self._with_parameters(
            lambda parameter: parameter.expand(*batch_shape, *parameter.shape[-2:]).clone()
        )

    def _with_parameters(self, change: Callable[[Tensor], Tensor]) -> Profile:
        profile = copy.deepcopy(self)
        for parameter in profile.parameters(recurse=False):
            parameter.data = change(parameter.data)
        return profile


class _Parametric(Profile):
    """A profile with one positive parameter, ``batch_shape x 1 x 1``, that is learned."""

    def __init__(self, name: str, value: float) -> None:
        super().__init__()
        self._raw = f"raw_{name}"
        self.register_parameter(self._raw, torch.nn.Parameter(torch.zeros(1, 1)))
        self.register_constraint(self._raw, Positive())
        self._set(value)

    def _get(self) -> Tensor:
        return self.constraint_for_parameter_name(self._raw).transform(getattr(self, self._raw))

    def _set(self, value: Tensor | float) -> None:
        raw = getattr(self, self._raw)
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool((value > 0).all()):
            raise ValueError(f"Expected {self._raw[4:]} > 0, got {value.tolist()}.")
        constraint = self.constraint_for_parameter_name(self._raw)
        self.initialize(**{self._raw: constraint.inverse_transform(value)})


class Gaussian(Profile):
    r""":math:`\exp(-s / 2)`."""

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return torch.exp(-0.5 * scaled)


class Exponential(Profile):
    r""":math:`\exp(-\sqrt s)`; the derivative, infinite at :math:`s = 0`, is set to 0 there."""

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return torch.exp(-_root(scaled))


class PowerExponential(Profile):
    r""":math:`\exp(-s^\beta)`, with the derivative at :math:`s = 0` set to 0 for :math:`\beta < 1`.

    Args:
        beta: In (0, 1]; 1/2 is the exponential profile. Fixed.

    Raises:
        ValueError: If ``beta`` is not in (0, 1].

    Source: Meunier et al. 2022, proposition 5.
    """

    def __init__(self, beta: float = 0.75) -> None:
        super().__init__()
        self.beta = _in_range("beta", beta, 1.0)

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return torch.exp(-_power(scaled, self.beta))


class Matern32(Profile):
    r""":math:`(1 + \sqrt{3 s}) \exp(-\sqrt{3 s})`."""

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return _Matern32Function.apply(scaled)


class Matern52(Profile):
    r""":math:`(1 + \sqrt{5 s} + 5 s / 3) \exp(-\sqrt{5 s})`."""

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return _Matern52Function.apply(scaled)


class RationalQuadratic(_Parametric):
    r""":math:`(1 + s / (2 \alpha))^{-\alpha}`.

    Args:
        alpha: Positive; learned from this start.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__("alpha", alpha)

    alpha = property(
        _Parametric._get, _Parametric._set, doc="Shape parameter, ``batch_shape x 1 x 1``."
    )

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return torch.exp(-self.alpha * torch.log1p(scaled / (2 * self.alpha)))


class Cauchy(Profile):
    r""":math:`1 / (1 + s)`."""

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return 1 / (1 + scaled)


class StudentT(Profile):
    r""":math:`1 / (1 + s^{t / 2})`, with the derivative at :math:`s = 0` set to 0 for :math:`t < 2`.

    Args:
        t: In (0, 2]; 2 is the Cauchy profile. Larger values are not positive definite. Fixed.

    Raises:
        ValueError: If ``t`` is not in (0, 2].

    Source: Szabo et al. 2015, table 1.
    """

    def __init__(self, t: float = 1.0) -> None:
        super().__init__()
        self.t = _in_range("t", t, 2.0)

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return 1 / (1 + _power(scaled, self.t / 2))


class InverseMultiquadric(Profile):
    r""":math:`(1 + s)^{-1/2}`."""

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return torch.rsqrt(1 + scaled)


class Linear(Profile):
    r"""The inner product about an origin, over :math:`\ell^2`."""

    radial = False

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return scaled


class Polynomial(_Parametric):
    r""":math:`(c + u)^k` of the inner product :math:`u` about an origin, over :math:`\ell^2`.

    Args:
        power: The degree ``k``, at least 1. Fixed.
        offset: The constant ``c``, positive; learned from this start.

    Raises:
        ValueError: If ``power`` is not a positive integer.
    """

    radial = False

    def __init__(self, power: int = 2, offset: float = 1.0) -> None:
        super().__init__("offset", offset)
        if power < 1 or power != int(power):
            raise ValueError(f"Expected power to be a positive integer, got {power!r}.")
        self.power = int(power)

    offset = property(_Parametric._get, _Parametric._set, doc="Constant, ``batch_shape x 1 x 1``.")

    def forward(self, scaled: Tensor) -> Tensor:
        """The covariance of every entry of ``scaled``."""
        return (self.offset + scaled) ** self.power


PROFILES: dict[str, type[Profile]] = {
    "gaussian": Gaussian,
    "exponential": Exponential,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
    "cauchy": Cauchy,
    "student_t": StudentT,
    "inverse_multiquadric": InverseMultiquadric,
    "power_exponential": PowerExponential,
    "linear": Linear,
    "polynomial": Polynomial,
}


def make_profile(profile: str | Profile) -> Profile:
    """A profile object from itself, or from its name with default parameters.

    Raises:
        ValueError: If there is no profile of that name.
        TypeError: If ``profile`` is neither a name nor a :class:`Profile`.
    """
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, str):
        raise TypeError(f"Expected the name of a profile or a Profile, got {profile!r}.")
    if profile not in PROFILES:
        raise ValueError(f"There is no profile {profile!r}; choose from {', '.join(PROFILES)}.")
    return PROFILES[profile]()


def _in_range(name: str, value: float, upper: float) -> float:
    if not 0 < value <= upper:
        raise ValueError(
            f"Expected 0 < {name} <= {upper:g}, where the profile is positive definite, got {value}."
        )
    return float(value)


def _power(s: Tensor, exponent: float) -> Tensor:
    """``s ** exponent``, with derivative 0 at 0 where it is infinite."""
    if exponent == 1:
        return s
    positive = s > 0
    return torch.where(positive, torch.where(positive, s, 1.0) ** exponent, 0.0)


def _root(s: Tensor) -> Tensor:
    return _power(s, 0.5)


# Automatic differentiation of the Matern profiles passes through a root and gives 0 * inf at s = 0.
# Their derivatives in s are Matern profiles of the next lower order.

# Where exp(-root) has long been zero; the product of that with an infinite root would be NaN.
_FAR = 1e3


class _Matern32Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        root = (3 * s).sqrt().clamp_max(_FAR)
        return (1 + root) * torch.exp(-root)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        return -1.5 * grad * torch.exp(-math.sqrt(3) * _root(s))


class _Matern52Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        root = (5 * s).sqrt().clamp_max(_FAR)
        return (1 + root + root.square() / 3) * torch.exp(-root)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (s,) = ctx.saved_tensors
        return -5 / 6 * grad * _Matern32Function.apply(5 / 3 * s)
