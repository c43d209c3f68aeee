"""The GPyTorch kernel of a distance and a profile."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.kernels.profiles import Profile, make_profile


class DistributionKernel(Kernel):
    r"""A profile of a Hilbertian distance between distributions.

    For the radial profiles

    .. math::
        k(P, P') = \varphi(d^2(P, P') / \ell^2);

    for ``"linear"`` and ``"polynomial"`` the argument is the inner product about the distance's
    origin :math:`P_0` (all mass at zero, or the zero of a space of mean embeddings), over
    :math:`\ell^2`:

    .. math::
        \langle P, P' \rangle = (d^2(P, P_0) + d^2(P', P_0) - d^2(P, P')) / 2.

    It is an ordinary GPyTorch kernel on rows, a ``batch_shape x N x m*(d+1)`` tensor: wrap it in
    ``ScaleKernel``, add and multiply it, give it ``active_dims`` beside ordinary columns.

    Args:
        distance: The squared Hilbert distance.
        profile: A :class:`Profile`, or the name of one with default parameters: gaussian,
            exponential, matern32, matern52, rational_quadratic, cauchy, student_t,
            inverse_multiquadric, power_exponential, linear, polynomial.
        **kwargs: Options of a GPyTorch kernel: ``batch_shape``, ``active_dims``,
            ``lengthscale_prior``, ``lengthscale_constraint``. By default the parameter behind the
            lengthscale is its logarithm, so that fits do not depend on the unit of the coordinates,
            and the lengthscale is 1 until :func:`gp_distributions.fit` starts it at the median
            distance.

    Raises:
        TypeError: If ``distance`` is no :class:`Distance`.
        ValueError: If there is no profile of that name, or ``ard_num_dims`` is given.
    """

    has_lengthscale = True

    def __init__(
        self, distance: Distance, profile: str | Profile = "matern52", **kwargs: Any
    ) -> None:
        if not isinstance(distance, Distance):
            raise TypeError(f"Expected a Distance, got {type(distance).__name__}.")
        if kwargs.get("ard_num_dims") is not None:
            raise ValueError(
                "A distance between distributions has one lengthscale, so that ard_num_dims must be "
                "None. Scale coordinates with PointClouds.normalize(scale=...) instead."
            )
        if kwargs.get("lengthscale_constraint") is None:
            kwargs["lengthscale_constraint"] = Positive(
                transform=torch.exp, inv_transform=torch.log
            )
        super().__init__(**kwargs)
        self.distance = distance
        self.profile = make_profile(profile)
        if self.batch_shape:
            self.profile = self.profile.expand_batch(self.batch_shape)

    def _set_lengthscale(self, value: Any) -> None:
        # GPyTorch reads a number in single precision.
        raw = self.raw_lengthscale
        super()._set_lengthscale(torch.as_tensor(value, dtype=raw.dtype, device=raw.device))

    @property
    def is_stationary(self) -> bool:
        """Whether the kernel is a function of the distance alone."""
        return self.profile.radial

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The covariances of rows, ``batch_shape x N x M``, or ``batch_shape x N`` with ``diag``."""
        squared = self.distance(x1, x2, diag=diag)
        if not self.profile.radial:
            squared = self._inner_products(x1, x2, squared, diag=diag)
        # A diagonal as a matrix of one column has the shape that parameters are made for.
        argument = squared.unsqueeze(-1) if diag else squared
        covariance = self.profile(argument / self.lengthscale.square())
        return covariance.squeeze(-1) if diag else covariance

    def _inner_products(self, x1: Tensor, x2: Tensor, squared: Tensor, *, diag: bool) -> Tensor:
        norms1 = self.distance.squared_norms(x1)
        norms2 = norms1 if x2 is x1 else self.distance.squared_norms(x2)
        if diag:
            return (norms1 + norms2 - squared) / 2
        return (norms1.unsqueeze(-1) + norms2.unsqueeze(-2) - squared) / 2

    # The distance has no batch axes, so that its cache can serve every part of a batch of kernels.

    def __getitem__(self, index: Any) -> DistributionKernel:
        """The kernel with its parameters indexed along their batch axes."""
        kernel = super().__getitem__(index)
        if kernel is not self:
            kernel.distance = self.distance
            kernel.profile = self.profile[index]
        return kernel

    def expand_batch(self, *sizes: Any) -> DistributionKernel:
        """The kernel with its parameters expanded to a batch shape."""
        kernel = super().expand_batch(*sizes)
        if kernel is not self:
            kernel.distance = self.distance
            kernel.profile = self.profile.expand_batch(kernel.batch_shape)
        return kernel
