"""Noise whose variance depends on the distributions, and that which is larger for smaller bags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.priors import Prior
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.distances.embedded_rows import Rows, embedded, rows_of
from gp_distributions.kernels.priors import LogarithmPrior
from gp_distributions.numerics.sampling import effective_sizes
from gp_distributions.rows.clouds import drop_copies, split_rows
from gp_distributions.rows.layout import Columns, Slots, select_columns

_NO_BATCH = torch.Size()
# Location and scale of the default prior of the logarithm of the sampling noise of a typical bag.
_SAMPLING = -4.0, 2.0


class ReadsRows(Likelihood):
    """A likelihood whose noise depends on the rows that the distributions of a model carry."""

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """Return the distribution of noisy observations, given that of the function."""
        rows = getattr(function_dist, "rows", None)
        return super().marginal(function_dist, *(params if rows is None else (rows,)), **kwargs)


class RowNoiseLikelihood(ReadsRows, GaussianLikelihood):
    """Gaussian noise with a variance for each row, which a subclass computes.

    Call the likelihood with the rows, ``likelihood(distribution, rows)``. They may be omitted for
    distributions that a :class:`DistributionGP` returns, because these carry their rows.
    """

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variances of ``batch_shape x N x width`` rows, ``batch_shape x N``."""
        raise NotImplementedError

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, **kwargs: Any
    ) -> DiagLinearOperator:
        if kwargs.get("noise") is not None:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        if not params:
            raise ValueError(
                "Expected the distributions as well, on which the noise depends. Call "
                "likelihood(distribution, rows)."
            )
        noise = self.variances(params[0] if isinstance(params[0], Rows) else params[0][0])
        return DiagLinearOperator(noise.expand(torch.broadcast_shapes(noise.shape, base_shape)))


class SamplingNoiseLikelihood(RowNoiseLikelihood):
    r"""Gaussian noise that is larger for smaller bags.

    The noise variance of an observation of a bag of :math:`n` atoms is

    .. math:: \sigma^2 + c\, (\bar n / n)^p,

    where :math:`\bar n` is the geometric mean of the sizes of the training bags. An average over the
    atoms of a bag has a variance of order :math:`1 / n`, so that :math:`p = 1`. If all training bags
    have one size, subsets of their atoms say how much faster the noise grows, with what else a small
    bag loses, such as a bias. For weighted
    atoms, :math:`n` is the squared sum of weights divided by the sum of squared weights. Equal atoms
    count apart: split an atom into two, and the bag is one larger. Use this likelihood only for bags of
    independent samples: pixels and pieces of a curve are not samples.

    Call the likelihood with the rows of the clouds, ``likelihood(distribution, rows)``. The rows may be
    omitted for distributions that a :class:`DistributionGP` returns, because these carry their rows.

    Args:
        dim: Dimension ``d`` of the atoms.
        typical: Size :math:`\bar n` of a typical bag.
        active_dims: Columns of a row that hold the cloud: numbers of columns, or
            ``model.encoding.columns[name]`` for a block of :class:`MixedInputs`. The default is all
            columns.
        noise_prior: Prior of :math:`\sigma^2`.
        noise_constraint: Constraint of :math:`\sigma^2`. GPyTorch's default is a lower bound of 1e-4.
        sampling_noise_prior: Prior of :math:`c`. Default: a :class:`LogarithmPrior` of location -4 and
            scale 2, which shrinks it where sizes say little.
        batch_shape: Batch shape of the parameters ``noise`` (:math:`\sigma^2`) and ``sampling_noise``
            (:math:`c`), both in squared units of the transformed targets.

    Example:
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.models import SamplingNoiseLikelihood
        >>> likelihood = SamplingNoiseLikelihood(dim=1, typical=4.0)
        >>> clouds = PointClouds.from_list([[[0.0], [1.0]], [[0.0], [1.0], [2.0], [3.0]]])
        >>> likelihood.ratios(clouds.pack())
        tensor([2., 1.], dtype=torch.float64)

    Source: Kish 1965 (the size of a weighted bag).
    """

    def __init__(
        self,
        dim: int,
        *,
        typical: float = 1.0,
        active_dims: Sequence[int] | Slots | None = None,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        sampling_noise_prior: Prior | None = None,
        batch_shape: torch.Size = _NO_BATCH,
    ) -> None:
        super().__init__(
            noise_prior=noise_prior, noise_constraint=noise_constraint, batch_shape=batch_shape
        )
        self.dim = dim
        self._typical: Tensor
        self.register_buffer("_typical", torch.tensor(typical, dtype=torch.float64))
        self.power: Tensor
        self.register_buffer("power", torch.ones(*batch_shape, 1, dtype=torch.float64))
        self.active_dims: Columns = (
            active_dims
            if active_dims is None or isinstance(active_dims, Slots)
            else tuple(map(int, active_dims))
        )
        # The raw parameter is the logarithm of c, since c may have any order of magnitude.
        raw = torch.full((*batch_shape, 1), _SAMPLING[0], dtype=torch.float64)
        self.register_parameter("raw_sampling_noise", torch.nn.Parameter(raw))
        self.register_constraint(
            "raw_sampling_noise", Positive(transform=torch.exp, inv_transform=torch.log)
        )
        self.register_prior(
            "sampling_noise_prior",
            sampling_noise_prior or LogarithmPrior(*_SAMPLING),
            _sampling_noise,
            _set_sampling_noise,
        )

    @property
    def typical(self) -> float:
        """Size of a typical bag, the geometric mean of those of the training bags."""
        return self._typical.item()

    @property
    def sampling_noise(self) -> Tensor:
        """The part ``c`` of the noise variance of a typical bag, a ``batch_shape x 1`` tensor."""
        return self.raw_sampling_noise_constraint.transform(self.raw_sampling_noise)

    @sampling_noise.setter
    def sampling_noise(self, value: Tensor | float) -> None:
        _set_sampling_noise(self, value)

    @torch.no_grad()
    def adapt(self, rows: Tensor) -> None:
        """Set the typical size from the training rows."""
        self._typical.copy_(self._sizes(rows).log().mean().exp())

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variance of each bag."""
        return self.noise + self.sampling_noise * self.ratios(rows)

    def ratios(self, rows: Rows) -> Tensor:
        """Compute the sampling noise of each bag of ``batch_shape x N x width`` rows over ``c``."""
        held = embedded(rows)
        key = "effective sizes", self.dim, self.active_dims
        sizes = held.derived(key, lambda: self._sizes(drop_copies(held.rows)))
        return (self._typical.to(sizes) / sizes) ** self.power.to(sizes)

    def _sizes(self, rows: Tensor) -> Tensor:
        clouds = select_columns(rows, self.active_dims)
        return effective_sizes(*split_rows(clouds, self.dim), merge=False)


def _sampling_noise(likelihood: SamplingNoiseLikelihood) -> Tensor:
    return likelihood.sampling_noise


def _set_sampling_noise(likelihood: Any, value: Tensor | float) -> None:
    value = torch.as_tensor(value).to(likelihood.raw_sampling_noise)
    constraint = likelihood.raw_sampling_noise_constraint
    likelihood.initialize(raw_sampling_noise=constraint.inverse_transform(value))


def relative_noise(likelihood: Likelihood | None, rows: Rows) -> Tensor:
    """Return the noise of clouds divided by the part that does not depend on them, ``... x N``."""
    if isinstance(likelihood, SamplingNoiseLikelihood):
        return likelihood.variances(rows) / likelihood.noise
    return torch.ones_like(rows_of(rows)[..., 0])


@torch.no_grad()
def multiply_noise(likelihood: GaussianLikelihood, factor: Tensor | float) -> None:
    """Multiply the noise of all clouds by a factor."""
    likelihood.noise = likelihood.noise * factor
    if isinstance(likelihood, SamplingNoiseLikelihood):
        likelihood.sampling_noise = likelihood.sampling_noise * factor
