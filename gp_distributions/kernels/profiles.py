r"""Profiles: functions of a distance or inner product that are positive definite on Hilbert spaces.

A radial profile is a function of :math:`s = d^2 / \ell^2`, the squared distance in squared
lengthscales. It is positive definite in every dimension if and only if it is completely monotone in
:math:`s` (Schoenberg 1938). All radial profiles in this module are completely monotone. The other
profiles are functions of the inner product about an origin, divided by :math:`\ell^2`.
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
    r"""Base class of profiles, which are functions of scaled squared distances or inner products.

    A subclass implements :meth:`forward`. Its parameters have shape ``batch_shape x 1 x 1``.

    Attributes:
        radial: Whether the argument is :math:`d^2 / \ell^2`. If ``False``, it is the inner product
            about an origin, divided by :math:`\ell^2`.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionKernel, SlicedWasserstein
        >>> from gp_distributions.kernels import Profile
        >>> class Laplacian(Profile):
        ...     def forward(self, scaled):
        ...         return torch.exp(-scaled.sqrt())
        >>> kernel = DistributionKernel(SlicedWasserstein(dim=2), Laplacian())
    """

    radial: ClassVar[bool] = True

    @abstractmethod
    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``, in the same shape."""

    def __getitem__(self, index: Any) -> Profile:
        """Index the batch axes of the parameters."""
        return self._with_parameters(lambda parameter: parameter[index])

    def expand_batch(self, batch_shape: torch.Size) -> Profile:
        """Expand the parameters to ``batch_shape``."""
        return self._with_parameters(
            lambda parameter: parameter.expand(*batch_shape, *parameter.shape[-2:]).clone()
        )

    def _with_parameters(self, change: Callable[[Tensor], Tensor]) -> Profile:
        profile = copy.deepcopy(self)
        for parameter in profile.parameters(recurse=False):
            parameter.data = change(parameter.data)
        return profile


class _Parametric(Profile):
    """A profile with one positive learned parameter of shape ``batch_shape x 1 x 1``."""

    def __init__(self, name: str, value: float) -> None:
        super().__init__()
        self._raw = f"raw_{name}"
        self.register_parameter(self._raw, torch.nn.Parameter(torch.zeros(1, 1)))
        self.register_constraint(self._raw, Positive())
        self._value = value

    @property
    def _value(self) -> Tensor:
        """Value of the positive parameter, ``batch_shape x 1 x 1``."""
        return self.constraint_for_parameter_name(self._raw).transform(getattr(self, self._raw))

    @_value.setter
    def _value(self, value: Tensor | float) -> None:
        raw = getattr(self, self._raw)
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool((value > 0).all()):
            raise ValueError(f"Expected {self._raw[4:]} > 0, got {value.tolist()}.")
        constraint = self.constraint_for_parameter_name(self._raw)
        self.initialize(**{self._raw: constraint.inverse_transform(value)})


class Gaussian(Profile):
    r"""Gaussian profile, :math:`\exp(-s / 2)`.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Gaussian
        >>> round(Gaussian()(torch.tensor(1.0)).item(), 4)
        0.6065
    """

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return torch.exp(-0.5 * scaled)


class Exponential(Profile):
    r"""Exponential profile, :math:`\exp(-\sqrt s)`.

    Its derivative is infinite at :math:`s = 0` and is set to 0 there.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Exponential
        >>> round(Exponential()(torch.tensor(1.0)).item(), 4)
        0.3679
    """

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return torch.exp(-_power(scaled, 0.5))


class PowerExponential(Profile):
    r"""Power exponential profile, :math:`\exp(-s^\beta)`.

    For :math:`\beta < 1` its derivative is infinite at :math:`s = 0` and is set to 0 there.

    Args:
        beta: Exponent in (0, 1], which is fixed. The value 1/2 gives the exponential profile.

    Raises:
        ValueError: If ``beta`` is not in (0, 1].

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import PowerExponential
        >>> round(PowerExponential(beta=0.5)(torch.tensor(1.0)).item(), 4)
        0.3679

    Source: Meunier et al. 2022, propositions 13 and 20.
    """

    def __init__(self, beta: float = 0.75) -> None:
        super().__init__()
        self.beta = _in_range("beta", beta, 1.0)

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return torch.exp(-_power(scaled, self.beta))


class Matern32(Profile):
    r"""Matern profile of smoothness 3/2, :math:`(1 + \sqrt{3 s}) \exp(-\sqrt{3 s})`.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Matern32
        >>> round(Matern32()(torch.tensor(1.0)).item(), 4)
        0.4834
    """

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return _Matern.apply(scaled, 3)


class Matern52(Profile):
    r"""Matern profile of smoothness 5/2, :math:`(1 + \sqrt{5 s} + 5 s / 3) \exp(-\sqrt{5 s})`.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Matern52
        >>> round(Matern52()(torch.tensor(1.0)).item(), 4)
        0.524
    """

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return _Matern.apply(scaled, 5)


class RationalQuadratic(_Parametric):
    r"""Rational quadratic profile, :math:`(1 + s / (2 \alpha))^{-\alpha}`.

    Args:
        alpha: Initial value of the positive parameter :math:`\alpha`, which is learned.

    Raises:
        ValueError: If ``alpha`` is not positive.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import RationalQuadratic
        >>> round(RationalQuadratic(alpha=1.0)(torch.tensor(1.0)).item(), 4)
        0.6667
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__("alpha", alpha)

    alpha = _Parametric._value

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return torch.exp(-self.alpha * torch.log1p(scaled / (2 * self.alpha)))


class Cauchy(Profile):
    r"""Cauchy profile, :math:`1 / (1 + s)`.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Cauchy
        >>> round(Cauchy()(torch.tensor(1.0)).item(), 4)
        0.5
    """

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return 1 / (1 + scaled)


class StudentT(Profile):
    r"""Generalised t-Student profile, :math:`1 / (1 + s^{t / 2})`.

    For :math:`t < 2` its derivative is infinite at :math:`s = 0` and is set to 0 there.

    Args:
        t: Exponent in (0, 2], which is fixed. The value 2 gives the Cauchy profile; for larger values,
            the profile would not be positive definite.

    Raises:
        ValueError: If ``t`` is not in (0, 2].

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import StudentT
        >>> round(StudentT(t=1.0)(torch.tensor(1.0)).item(), 4)
        0.5

    Source: Szabo et al. 2015, table 1.
    """

    def __init__(self, t: float = 1.0) -> None:
        super().__init__()
        self.t = _in_range("t", t, 2.0)

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return 1 / (1 + _power(scaled, self.t / 2))


class InverseMultiquadric(Profile):
    r"""Inverse multiquadric profile, :math:`(1 + s)^{-1/2}`.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import InverseMultiquadric
        >>> round(InverseMultiquadric()(torch.tensor(1.0)).item(), 4)
        0.7071
    """

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return torch.rsqrt(1 + scaled)


class Linear(Profile):
    r"""Linear profile: the inner product about an origin, divided by :math:`\ell^2`.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Linear
        >>> round(Linear()(torch.tensor(1.0)).item(), 4)
        1.0
    """

    radial = False

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
        return scaled


class Polynomial(_Parametric):
    r"""Polynomial profile, :math:`(c + u)^k`, where :math:`u` is the inner product over :math:`\ell^2`.

    Args:
        power: Degree ``k``, at least 1, which is fixed.
        offset: Initial value of the positive constant ``c``, which is learned. 0 fixes it at zero: there
            are no terms of lower degrees then.

    Raises:
        ValueError: If ``power`` is not a positive integer, or ``offset`` is negative.

    Example:
        >>> import torch
        >>> from gp_distributions.kernels import Polynomial
        >>> round(Polynomial(power=2)(torch.tensor(1.0)).item(), 4)
        4.0
    """

    radial = False

    def __init__(self, power: int = 2, offset: float = 1.0) -> None:
        if power < 1 or power != int(power):
            raise ValueError(f"Expected power to be a positive integer, got {power!r}.")
        if offset == 0:
            Profile.__init__(self)  # without a parameter
            self.raw_offset = None
        else:
            super().__init__("offset", offset)
        self.power = int(power)

    @property
    def offset(self) -> Tensor | float:
        """The constant ``c``, ``batch_shape x 1 x 1``; the number 0 if it is fixed at zero."""
        return 0.0 if self.raw_offset is None else self._value

    @offset.setter
    def offset(self, value: Tensor | float) -> None:
        if self.raw_offset is None:
            raise ValueError(f"Expected a fixed offset of 0, got {value}: make a new profile.")
        self._value = value

    def forward(self, scaled: Tensor) -> Tensor:
        """Compute the covariance for each entry of ``scaled``."""
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
    """Create a profile with default parameters from its name; return a profile unchanged.

    Raises:
        ValueError: If there is no profile of that name.
        TypeError: If ``profile`` is neither a name nor a :class:`Profile`.
    """
    if isinstance(profile, Profile):
        return profile
    if not isinstance(profile, str):
        raise TypeError(f"Expected a Profile or the name of a profile, got {profile!r}.")
    if profile not in PROFILES:
        raise ValueError(f"There is no profile {profile!r}; choose from {', '.join(PROFILES)}.")
    return PROFILES[profile]()


def _in_range(name: str, value: float, upper: float) -> float:
    if not 0 < value <= upper:
        raise ValueError(
            f"Expected 0 < {name} <= {upper:g}, for which the profile is positive definite, got {value}."
        )
    return float(value)


def _power(s: Tensor, exponent: float) -> Tensor:
    """Compute ``s ** exponent``, with the derivative at ``s = 0`` set to 0 where it is infinite."""
    if exponent == 1:
        return s
    positive = s > 0
    return torch.where(positive, torch.where(positive, s, 1.0) ** exponent, 0.0)


# Automatic differentiation of the Matern profiles passes through a square root and gives 0 * inf at
# s = 0. Their derivatives in s are Matern profiles of the next lower order.

# Limit on the root. exp(-root) is already zero at this limit; an infinite root would give NaN.
_FAR = 1e3


class _Matern(torch.autograd.Function):
    """Matern profile as a function of ``s`` and of twice its smoothness, which is 3 or 5."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, twice: int) -> Tensor:
        ctx.save_for_backward(s)
        ctx.twice = twice
        root = (twice * s).sqrt_().clamp_max_(_FAR)
        polynomial = 1 + root if twice == 3 else (1 + root).add_(root.square().div_(3))
        return polynomial.mul_(root.neg_().exp_())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (s,) = ctx.saved_tensors
        if ctx.twice == 3:
            return -1.5 * grad * torch.exp(-math.sqrt(3) * _power(s, 0.5)), None
        return -5 / 6 * grad * _Matern.apply(5 / 3 * s, 3), None
