"""Noise whose variance depends on the distributions, and that which is larger for smaller bags."""

from __future__ import annotations

import math
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
from gp_distributions.numerics.sampling import effective_sizes
from gp_distributions.rows.clouds import drop_copies, split_rows
from gp_distributions.rows.layout import Columns, Slots, select_columns
from gp_distributions.warnings import TiesWarning, warn

_NO_BATCH = torch.Size()


class RowNoiseLikelihood(GaussianLikelihood):
    """Gaussian noise with a variance for each row, which a subclass computes.

    Call the likelihood with the rows, ``likelihood(distribution, rows)``. They may be omitted for
    distributions that a :class:`DistributionGP` returns, because these carry their rows.
    """

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variances of ``batch_shape x N x width`` rows, ``batch_shape x N``."""
        raise NotImplementedError

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """Return the distribution of noisy observations, given that of the function."""
        rows = getattr(function_dist, "rows", None)
        return super().marginal(function_dist, *(params if rows is None else (rows,)), **kwargs)

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

    For a bag of effective sample size :math:`n_\mathrm{eff}` (the squared sum of weights divided by the
    sum of squared weights), the noise variance of an observation is

    .. math::
        \sigma^2 + c\, e + b\, e^2, \qquad
        e = (1 / n_\mathrm{eff} - 1 / n_\mathrm{max})_+ .

    Bags of at least :math:`n_\mathrm{max}` samples have the noise variance :math:`\sigma^2`. An estimate
    from :math:`n` samples has a variance of order :math:`1 / n`, which the term :math:`c\, e` models,
    and a squared bias of order :math:`1 / n^2`, which :math:`b\, e^2` models. Use this likelihood only
    for bags of independent samples: pixels and pieces of a curve are not samples.

    Call the likelihood with the rows of the clouds, ``likelihood(distribution, rows)``. The rows may be
    omitted for distributions that a :class:`DistributionGP` returns, because these carry their rows.

    Args:
        dim: Dimension ``d`` of the atoms.
        largest: Effective size :math:`n_\mathrm{max}` of the largest training bag.
        active_dims: Columns of a row that hold the cloud: numbers of columns, or
            ``model.encoding.columns[name]`` for a block of :class:`MixedInputs`. The default is all
            columns.
        merge: Whether equal atoms count as copies of one sample, rather than as separate measurements
            that agree.
        noise_prior: Prior of :math:`\sigma^2`.
        noise_constraint: Constraint of :math:`\sigma^2`. GPyTorch's default is a lower bound of 1e-4.
        batch_shape: Batch shape of the parameters ``noise`` (:math:`\sigma^2`), ``sampling_noise``
            (:math:`c`) and ``sampling_bias`` (:math:`b`), all in squared units of the transformed
            targets. :math:`b` does not require a gradient and is 0 until :func:`fit` learns :math:`c`
            and :math:`b`.

    Example:
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.models import SamplingNoiseLikelihood
        >>> likelihood = SamplingNoiseLikelihood(dim=1, largest=4.0)
        >>> clouds = PointClouds.from_list([[[0.0], [1.0]], [[0.0], [1.0], [2.0], [3.0]]])
        >>> likelihood.excess(clouds.pack())
        tensor([0.2500, 0.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        dim: int,
        *,
        largest: float = math.inf,
        active_dims: Sequence[int] | Slots | None = None,
        merge: bool = True,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
        batch_shape: torch.Size = _NO_BATCH,
    ) -> None:
        super().__init__(
            noise_prior=noise_prior, noise_constraint=noise_constraint, batch_shape=batch_shape
        )
        self.dim = dim
        self._largest: Tensor
        self.register_buffer("_largest", torch.tensor(largest, dtype=torch.float64))
        self.active_dims: Columns = (
            active_dims
            if active_dims is None or isinstance(active_dims, Slots)
            else tuple(map(int, active_dims))
        )
        self.merge = merge
        self.register_parameter(
            "raw_sampling_noise", torch.nn.Parameter(torch.zeros(*batch_shape, 1))
        )
        # The raw parameter is the logarithm of c, since c may have any order of magnitude.
        self.register_constraint(
            "raw_sampling_noise", Positive(transform=torch.exp, inv_transform=torch.log)
        )
        self.sampling_bias = torch.nn.Parameter(torch.zeros(*batch_shape, 1), requires_grad=False)

    @property
    def largest(self) -> float:
        """Effective size of the largest training bag."""
        return self._largest.item()

    @largest.setter
    def largest(self, value: float) -> None:
        self._largest.fill_(value)

    @property
    def sampling_noise(self) -> Tensor:
        """The coefficient ``c`` of the excess, a ``batch_shape x 1`` tensor."""
        return self.raw_sampling_noise_constraint.transform(self.raw_sampling_noise)

    @sampling_noise.setter
    def sampling_noise(self, value: Tensor | float) -> None:
        value = torch.as_tensor(value).to(self.raw_sampling_noise)
        self.initialize(
            raw_sampling_noise=self.raw_sampling_noise_constraint.inverse_transform(value)
        )

    @torch.no_grad()
    def adapt(self, rows: Tensor) -> None:
        """Set ``largest`` from the training rows, and ``sampling_noise`` to ``noise * largest``.

        Warns:
            TiesWarning: If merging equal atoms reduces the effective size of a bag to less than half.
        """
        sizes = self._sizes(rows, self.merge)
        self.largest = sizes.max().item()
        self.sampling_noise = self.noise * self.largest
        if self.merge:
            _warn_of_ties(sizes, self._sizes(rows, merge=False))

    def variances(self, rows: Rows) -> Tensor:
        """Compute the noise variance of each bag."""
        excess = self.excess(rows)
        return self.noise + (self.sampling_noise + self.sampling_bias * excess) * excess

    def excess(self, rows: Rows) -> Tensor:
        """Compute the excess ``e`` of each bag in a ``batch_shape x N x m*(d+1)`` tensor of rows."""
        held = embedded(rows)
        key = "effective sizes", self.dim, self.active_dims, self.merge
        sizes = held.derived(key, lambda: self._sizes(drop_copies(held.rows), self.merge))
        return (1 / sizes - 1 / self.largest).clamp_min(0)

    def _sizes(self, rows: Tensor, merge: bool) -> Tensor:
        clouds = select_columns(rows, self.active_dims)
        return effective_sizes(*split_rows(clouds, self.dim), merge=merge)


def relative_noise(likelihood: Likelihood | None, rows: Rows) -> Tensor:
    """Return the noise of clouds divided by the noise of the largest bags, ``... x N``."""
    if isinstance(likelihood, SamplingNoiseLikelihood):
        return likelihood.variances(rows) / likelihood.noise
    return torch.ones_like(rows_of(rows)[..., 0])


@torch.no_grad()
def multiply_noise(likelihood: GaussianLikelihood, factor: Tensor | float) -> None:
    """Multiply the noise of all clouds by a factor."""
    likelihood.noise = likelihood.noise * factor
    if isinstance(likelihood, SamplingNoiseLikelihood):
        likelihood.sampling_noise = likelihood.sampling_noise * factor
        likelihood.sampling_bias.mul_(factor)


def _warn_of_ties(sizes: Tensor, counted: Tensor) -> None:
    """Warn if merging equal atoms reduces the effective size of a bag to less than half."""
    tied = 2 * sizes < counted
    if bool(tied.any()):
        first = tuple(tied.nonzero()[0].tolist())
        warn(
            f"Equal atoms count as copies of one sample, which leaves {int(tied.sum())} of "
            f"{tied.numel()} bags less than half of their size: bag {first[-1]} counts as "
            f"{sizes[first].item():.1f} measurements instead of {counted[first].item():.1f}. If each "
            "atom is a separate measurement (rounded values, counts, answers on a scale), pass "
            'sampling_noise="ties".',
            TiesWarning,
        )
