"""The GPyTorch kernel that applies a profile to a distance between distributions."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior, Prior
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.comparison import in_mode
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, embedded, rows_of
from gp_distributions.kernels.profiles import Profile, make_profile
from gp_distributions.measures.arrays import described
from gp_distributions.measures.gaussians import Distributions
from gp_distributions.measures.inputs import as_rows, kind_of
from gp_distributions.numerics.linear_algebra import entrywise
from gp_distributions.numerics.pairwise import squared_euclidean
from gp_distributions.rows.clouds import equal_rows, expand_batches
from gp_distributions.rows.tensors import is_tracked


class RowKernel(Kernel):
    """Kernel whose ``forward`` reads rows of different widths and returns a tensor."""

    def __call__(self, x1: Any, x2: Any = None, *args: Any, **params: Any) -> Any:
        """Evaluate the kernel as GPyTorch does, on rows.

        Raises:
            TypeError: If the inputs are not tensors.
        """
        for x in (x1, x2):
            if not isinstance(x, Tensor | None):
                raise TypeError(
                    f"Expected rows as a tensor, got {type(x).__name__}. Pass clouds.pack()."
                )
        return super().__call__(x1, x2, *args, **params)


class Origin(torch.nn.Module):
    r"""The mean, in the Hilbert space of a distance, of one or more distributions.

    The squared distance of a distribution to the mean of :math:`P_1, \dots, P_K` is

    .. math::
        \frac1K \sum_k d^2(P, P_k) - \frac{1}{2 K^2} \sum_{kl} d^2(P_k, P_l).

    Args:
        distributions: The distributions, or their ``K x width`` tensor of rows.
        distance: Distance that will compare them with others.

    Raises:
        TypeError: If ``distributions`` are neither distributions nor a tensor of floating-point numbers.
        ValueError: If there are none, or the distance does not read them.
    """

    def __init__(self, distributions: Distributions | Tensor, distance: Distance) -> None:
        super().__init__()
        rows, kind = as_rows(distributions).detach(), kind_of(distributions)
        if rows.dim() != 2 or not rows.numel():
            raise ValueError(
                "Expected an origin of one or more distributions, as a tensor of shape (K, width), got "
                f"shape {tuple(rows.shape)}."
            )
        if kind not in (None, distance.inputs):
            raise ValueError(f"Expected an origin of {distance.inputs}, got {kind}.")
        distance.block.split(rows)  # refuses rows of another width
        self.rows: Tensor
        self.register_buffer("rows", rows.clone())

    def extra_repr(self) -> str:
        """Return the number of distributions, for printing."""
        return f"mean of {len(self.rows)}"

    def squared_norms(self, distance: Distance, rows: Rows) -> Tensor:
        """Compute the squared distances of rows to the origin, ``batch_shape x N``."""
        held = embedded(rows)
        origin = held.derived("origin", lambda: EmbeddedRows(self.rows.to(held.rows)), by=self)
        within = distance.forward(origin).mean((-2, -1))
        return distance.forward(held, origin).mean(-1) - within / 2


# The options of GPyTorch's kernels; it ignores others.
_OPTIONS = [name for name in inspect.signature(Kernel).parameters if name != "kwargs"]


def dimension_scaled_prior(num_dims: int) -> LogNormalPrior:
    r"""Return BoTorch's prior of lengthscales, :math:`LogNormal(\sqrt 2 + \log(d) / 2, \sqrt 3)`."""
    return LogNormalPrior(math.sqrt(2) + math.log(num_dims) / 2, math.sqrt(3))


class DistributionKernel(RowKernel):
    r"""Kernel that applies a profile to a Hilbertian distance between distributions.

    The radial profiles are functions of the squared distance in squared lengthscales,

    .. math::
        k(P, P') = \varphi(d^2(P, P') / \ell^2).

    With ``linear=True`` there is a second term, for targets that are averages over atoms or otherwise
    linear in features of the distance,

    .. math::
        k(P, P') = \varphi(d^2(P, P') / \ell^2) + v\, \langle P, P' \rangle.

    The profiles ``"linear"`` and ``"polynomial"`` are functions of the inner product, divided by
    :math:`\ell^2`,

    .. math::
        \langle P, P' \rangle = (d^2(P, P_0) + d^2(P', P_0) - d^2(P, P')) / 2,

    about an origin :math:`P_0`: by default that of the distance, which is all mass at zero or the zero
    of a space of mean embeddings.

    This is an ordinary GPyTorch kernel on rows, ``batch_shape x N x m*(d+1)`` tensors. It can be
    wrapped in a ``ScaleKernel``, added, multiplied, and given ``active_dims`` beside ordinary columns.
    BoTorch can draw sample paths if the profile is radial and the distance has ``embed``.

    Args:
        distance: Distance between distributions.
        profile: :class:`Profile`, or the name of one with default parameters: gaussian,
            exponential, matern32, matern52, rational_quadratic, cauchy, student_t,
            inverse_multiquadric, power_exponential, linear, polynomial. Default: matern52.
        linear: Whether to add a term that is linear in the features of the distance, whose variance
            ``linear_variance`` (:math:`v`), in squared units of one over the distance, is learned. It is
            1 until a fit starts it where the term varies as much as half of the first.
        linear_variance_prior: Prior of that variance. Default: none.
        origin: Origin of inner products, for ``linear`` and the profiles ``"linear"`` and
            ``"polynomial"``: a container
            of one distribution, the template; or of several, whose mean in the Hilbert space of the
            distance is the origin. ``origin=train_X`` centres the training data, but then
            knows those that are left out, whose predictions are far too good. Rows of distributions are
            accepted too. Default: the origin of the distance.
        **kwargs: GPyTorch options: ``batch_shape``, ``active_dims``, ``lengthscale_prior``,
            ``lengthscale_constraint``. By default the raw parameter is the logarithm of the
            lengthscale, so that fits do not depend on the unit of the coordinates. The lengthscale is 1
            until :func:`gp_distributions.fit` sets it to the median distance; several lengthscales, of a
            :class:`PrincipalDistance`, are at the mode of their prior.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`, ``profile`` is neither a name nor a
            :class:`Profile`, ``origin`` is neither distributions nor a tensor, or there is no option
            of a name in ``kwargs``.
        ValueError: If there is no profile of that name, a term is linear beside a profile of inner
            products or several lengthscales, ``ard_num_dims`` is neither 1 nor the number of
            features of a :class:`PrincipalDistance`, the distance does not read ``origin``, or the
            profile is a function of the distance, which has no origin.

    Example:
        >>> from gpytorch.kernels import ScaleKernel
        >>> from gp_distributions import DistributionKernel, PointClouds, SlicedWasserstein
        >>> kernel = ScaleKernel(DistributionKernel(SlicedWasserstein(dim=1), "matern52"))
        >>> rows = PointClouds.from_list([[[0.0], [2.0]], [[1.0]], [[3.0]]]).pack()
        >>> kernel(rows).to_dense().shape
        torch.Size([3, 3])

        Inner products about a template, which are covariances of points about the mean here:

        >>> clouds = PointClouds.from_list([[[0.0]], [[2.0]], [[4.0]]])
        >>> kernel = DistributionKernel(SlicedWasserstein(dim=1), "linear", origin=clouds)
        >>> kernel(clouds.pack()).to_dense().detach()
        tensor([[ 4.,  0., -4.],
                [ 0.,  0.,  0.],
                [-4.,  0.,  4.]], dtype=torch.float64)

    Source: Meunier et al. 2022, eq. 7 and proposition 13; Kolouri, Zou and Rohde 2016, theorem 6 (inner
    products about a template).
    """

    has_lengthscale = True

    def __init__(
        self,
        distance: Distance,
        profile: str | Profile = "matern52",
        *,
        linear: bool = False,
        linear_variance_prior: Prior | None = None,
        origin: Distributions | Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(distance, Distance):
            raise TypeError(
                f"Expected a Distance, such as SlicedWasserstein(dim), got {described(distance)}."
            )
        self._check_options(kwargs)
        number: int | None = kwargs.setdefault("ard_num_dims", distance.ard_num_dims)
        if number not in (None, 1, distance.ard_num_dims):
            raise ValueError(
                f"Expected ard_num_dims=None, got {number}: {type(distance).__name__} has one "
                "lengthscale. To learn a lengthscale for each principal component of its features, use "
                "PrincipalDistance(distance)."
            )
        if number is not None and number > 1 and kwargs.get("lengthscale_prior") is None:
            kwargs["lengthscale_prior"] = dimension_scaled_prior(number)
        if kwargs.get("lengthscale_constraint") is None:
            kwargs["lengthscale_constraint"] = Positive(torch.exp, torch.log)
        super().__init__(**kwargs)
        # GPyTorch compares it with the width of rows.
        self.num_lengthscales, self.ard_num_dims = number, None
        self.distance = distance
        self.profile = make_profile(profile)
        if self.is_ard and not self.profile.radial:
            raise ValueError(
                f"Expected ard_num_dims=1 for the profile {type(self.profile).__name__}, a function of "
                f"inner products, got {number}."
            )
        self.start_at_prior()
        if self.batch_shape:
            self.profile = self.profile.expand_batch(self.batch_shape)
        self.linear = linear
        if linear and (self.is_ard or not self.profile.radial):
            raise ValueError(
                "Expected linear=False for several lengthscales, or a profile of inner products, got "
                "True. A linear term stands beside one function of the distance."
            )
        if linear:
            raw = torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, 1))
            self.register_parameter("raw_linear_variance", raw)
            self.register_constraint("raw_linear_variance", Positive(torch.exp, torch.log))
            if linear_variance_prior is not None:
                closures = _linear_variance, _set_linear_variance
                self.register_prior("linear_variance_prior", linear_variance_prior, *closures)
        if origin is not None and self.profile.radial and not linear:
            raise ValueError(
                f"Expected origin=None for the profile {type(self.profile).__name__}, a function of "
                'the distance. Only "linear" and "polynomial" have an origin.'
            )
        # Kernels of a batch slice their own buffers, but not those of other modules.
        self._origin = None if origin is None else Origin(origin, distance)

    @property
    def linear_variance(self) -> Tensor:
        """The factor :math:`v` of inner products, ``batch_shape x 1 x 1``; it can be set."""
        return self.raw_linear_variance_constraint.transform(self.raw_linear_variance)

    @linear_variance.setter
    def linear_variance(self, value: Tensor | float) -> None:
        _set_linear_variance(self, value)

    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> None:
        """Refuse options that GPyTorch would ignore, such as misspelt ones."""
        if unknown := [name for name in options if name not in _OPTIONS]:
            own = [name for name in inspect.signature(cls).parameters if name != "kwargs"]
            names = ", ".join(dict.fromkeys([*own, *_OPTIONS]))
            raise TypeError(
                f"Expected options of {cls.__name__} from ({names}), got "
                f"{', '.join(map(repr, unknown))}."
            )

    @property
    def origin(self) -> Tensor | None:
        """Rows of the distributions whose mean is the origin; ``None`` for that of the distance."""
        return None if self._origin is None else self._origin.rows

    def _set_lengthscale(self, value: Any) -> None:
        # GPyTorch converts a plain number to single precision.
        raw = self.raw_lengthscale
        super()._set_lengthscale(torch.as_tensor(value, dtype=raw.dtype, device=raw.device))

    @property
    def is_stationary(self) -> bool:
        """Whether the kernel depends on the distance only: true for radial profiles alone."""
        return self.profile.radial and not self.linear

    def forward(self, x1: Rows, x2: Rows, diag: bool = False, **params: Any) -> Tensor:
        """Compute covariances of rows: ``batch_shape x N x M``, or ``batch_shape x N`` with ``diag``."""
        return self.scaled(x1, x2, diag=diag)

    def scaled(
        self, x1: Rows, x2: Rows, outputscale: Tensor | None = None, *, diag: bool = False
    ) -> Tensor:
        """Compute covariances as :meth:`forward` does, times a ``batch_shape x 1 x 1`` outputscale."""
        lengthscale = self.lengthscale
        if self.is_ard:
            squared = self._in_lengthscales(x1, x2, diag=diag)
            lengthscale = torch.ones_like(lengthscale[..., :1])
        else:
            squared = self.unscaled(x1, x2, diag=diag)

        def covariances(squared: Tensor) -> Tensor:
            values = self.profile(squared / lengthscale.square())
            return values if outputscale is None else values * outputscale

        scales = [lengthscale] if outputscale is None else [lengthscale, outputscale]
        parameters = [*scales, *self.profile.parameters()]
        # Parameters broadcast with matrices, so the diagonal is passed as a matrix with one column.
        argument = squared.unsqueeze(-1) if diag else squared
        covariance = entrywise(covariances, argument, parameters)
        if self.linear:
            products = self.inner_products(x1, x2, squared, diag=diag)
            variance = self.linear_variance
            variance = variance if outputscale is None else variance * outputscale
            covariance = covariance + variance * (products.unsqueeze(-1) if diag else products)
        return covariance.squeeze(-1) if diag else covariance

    @property
    def is_ard(self) -> bool:
        """Whether each feature of the distance has a lengthscale of its own."""
        return (self.num_lengthscales or 1) > 1

    def start_at_prior(self) -> None:
        """Set several lengthscales to the mode of their prior, where fits of them start."""
        prior = getattr(self, "lengthscale_prior", None)
        if self.is_ard and isinstance(prior, LogNormalPrior) and self.raw_lengthscale.requires_grad:
            self._set_lengthscale(prior.mode.expand(self.raw_lengthscale.shape))

    def features(self, rows: Rows) -> Tensor:
        """Return the features of rows that have a lengthscale each, ``batch_shape x N x D``."""
        return in_mode(self.distance).represented(rows)

    def scaled_features(self, rows: Rows) -> Tensor:
        """Return the features of rows in lengthscales, ``batch_shape x N x D``."""
        return self.features(rows) / self.lengthscale

    def unscaled(self, x1: Rows, x2: Rows, *, diag: bool = False) -> Tensor:
        """Compute what the profile reads for lengthscale 1: squared distances or inner products."""
        squared = self.distance(x1, x2, diag=diag)
        return squared if self.profile.radial else self.inner_products(x1, x2, squared, diag=diag)

    def _in_lengthscales(self, x1: Rows, x2: Rows, *, diag: bool) -> Tensor:
        """Compute squared distances between features in lengthscales."""
        first = self.scaled_features(x1)
        second = first if x2 is x1 else self.scaled_features(x2)
        rows = rows_of(x1), rows_of(x2)
        squared = (first - second).square().sum(-1) if diag else squared_euclidean(first, second)
        if x2 is not x1 and is_tracked(*rows):
            # Features with and without a gradient may be rounded differently.
            squared = squared.masked_fill(equal_rows(*rows, diag=diag), 0)
        return expand_batches(squared, *rows, diag=diag)

    def inner_products(self, x1: Rows, x2: Rows, squared: Tensor, *, diag: bool = False) -> Tensor:
        """Compute inner products about the origin, given squared distances."""
        norms1 = self._squared_norms(x1)
        norms2 = norms1 if x2 is x1 else self._squared_norms(x2)
        sums = norms1 + norms2 if diag else norms1.unsqueeze(-1) + norms2.unsqueeze(-2)
        return (sums - squared) / 2

    def _squared_norms(self, rows: Rows) -> Tensor:
        if self._origin is None:
            return self.distance.squared_norms(rows)
        return self._origin.squared_norms(self.distance, rows)

    # The distance has no batch axes: all kernels of a batch share the distance and its cache.

    def __getitem__(self, index: Any) -> DistributionKernel:
        """Index a batch of kernels; the result shares the distance with this kernel."""
        kernel = super().__getitem__(index)
        if kernel is not self:
            kernel.distance = self.distance
            kernel.profile = self.profile[index]
        return kernel

    def expand_batch(self, *sizes: Any) -> DistributionKernel:
        """Expand the parameters to a batch shape; the result shares the distance with this kernel."""
        kernel = super().expand_batch(*sizes)
        if kernel is not self:
            kernel.distance = self.distance
            kernel.profile = self.profile.expand_batch(kernel.batch_shape)
        return kernel


def _linear_variance(kernel: DistributionKernel) -> Tensor:
    return kernel.linear_variance


def _set_linear_variance(kernel: Any, value: Tensor | float) -> None:
    value = (
        torch.as_tensor(value)
        .to(kernel.raw_linear_variance)
        .expand(kernel.raw_linear_variance.shape)
    )
    constraint = kernel.raw_linear_variance_constraint
    kernel.initialize(raw_linear_variance=constraint.inverse_transform(value))
