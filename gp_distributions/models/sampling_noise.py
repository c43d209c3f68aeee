"""Noise of bags that are samples: the smaller a bag, the less it tells of its distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import Prior
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gp_distributions.rows.clouds import drop_copies, split_rows
from gp_distributions.rows.memory import Memory
from gp_distributions.warnings import TiesWarning, warn

_NO_BATCH = torch.Size()


def effective_sizes(points: Tensor, weights: Tensor, *, merge: bool = True) -> Tensor:
    r"""Effective sample sizes of weighted clouds.

    With the weights :math:`w_i` of atoms, by default those of equal atoms added up,

    .. math:: n_\mathrm{eff} = \frac{(\sum_i w_i)^2}{\sum_i w_i^2},

    which is the number of atoms where weights are equal.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        merge: Whether equal atoms are copies of one, rather than measurements that came out alike.

    Returns:
        A ``batch_shape`` tensor.

    Source: Kish 1965, Survey Sampling.
    """
    weights = weights / weights.sum(-1, keepdim=True)
    if not merge:
        return 1 / weights.square().sum(-1)
    order = torch.arange(weights.shape[-1], device=weights.device).expand(weights.shape)
    for axis in reversed(range(points.shape[-1])):  # equal atoms come to lie side by side
        keys = points[..., axis].detach().gather(-1, order)
        order = order.gather(-1, keys.argsort(dim=-1, stable=True))
    points = points.gather(-2, order.unsqueeze(-1).expand(points.shape))
    differs = (points[..., 1:, :] != points[..., :-1, :]).any(-1)
    atom = torch.nn.functional.pad(differs.cumsum(-1), (1, 0))
    weights = weights.gather(-1, order)
    return 1 / torch.zeros_like(weights).scatter_add(-1, atom, weights).square().sum(-1)


class SamplingNoiseLikelihood(GaussianLikelihood):
    r"""Gaussian noise that is larger at smaller bags.

    For a bag whose effective sample size is :math:`n_\mathrm{eff}`, see :func:`effective_sizes`, the
    variance of an observation about the function is

    .. math::
        \sigma^2 + c\, e + b\, e^2, \qquad
        e = \left(\frac{1}{n_\mathrm{eff}} - \frac{1}{n_\mathrm{max}}\right)_+ .

    With :math:`b = 0` that is a constant plus :math:`c / n_\mathrm{eff}` up to bags of
    :math:`n_\mathrm{max}`, whose noise is :math:`\sigma^2`, and no less noise beyond. Errors of
    estimates from samples have a variance of the order :math:`1 / n`, the first term, and a squared bias
    of the order :math:`1 / n^2`, the second. Only for bags of independent samples: the weights of pixels
    and of pieces of a curve are no samples.

    It is called with the clouds, as GPyTorch's other likelihoods may be:
    ``likelihood(distribution, rows)``. A distribution that a :class:`DistributionGP` returns knows
    its clouds.

    Args:
        dim: The dimension ``d`` of the atoms.
        largest: :math:`n_\mathrm{max}`, the effective size of the largest training bag.
        active_dims: The columns of a row that hold the cloud. Default: all.
        merge: Whether equal atoms are copies of one, see :func:`effective_sizes`.
        noise_prior: Of :math:`\sigma^2`.
        noise_constraint: Of :math:`\sigma^2`; GPyTorch's default is at least 1e-4.
        batch_shape: Of the parameters ``noise``, :math:`\sigma^2`, ``sampling_noise``, :math:`c`, and
            ``sampling_bias``, :math:`b`, all in squared units of the targets that the model sees,
            standardised by default. :math:`b` is 0 and requires no gradient;
            :func:`learn_sampling_noise` sets it.
    """

    def __init__(
        self,
        dim: int,
        *,
        largest: float = math.inf,
        active_dims: Sequence[int] | None = None,
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
        self.active_dims = None if active_dims is None else tuple(map(int, active_dims))
        self.merge = merge
        self.register_parameter(
            "raw_sampling_noise", torch.nn.Parameter(torch.zeros(*batch_shape, 1))
        )
        # On a logarithmic scale, as c may be of any size.
        self.register_constraint(
            "raw_sampling_noise", Positive(transform=torch.exp, inv_transform=torch.log)
        )
        self.sampling_bias = torch.nn.Parameter(torch.zeros(*batch_shape, 1), requires_grad=False)
        self._memory = Memory()

    @property
    def largest(self) -> float:
        """The effective size of the largest training bag."""
        return self._largest.item()

    @largest.setter
    def largest(self, value: float) -> None:
        self._largest.fill_(value)

    @property
    def sampling_noise(self) -> Tensor:
        """The noise ``c`` of a bag of one atom, ``batch_shape x 1``."""
        return self.raw_sampling_noise_constraint.transform(self.raw_sampling_noise)

    @sampling_noise.setter
    def sampling_noise(self, value: Tensor | float) -> None:
        value = torch.as_tensor(value).to(self.raw_sampling_noise)
        self.initialize(
            raw_sampling_noise=self.raw_sampling_noise_constraint.inverse_transform(value)
        )

    def adapt(self, rows: Tensor) -> None:
        """Set the largest size to that of training rows, ``c`` to what would be all of its noise.

        Warns:
            TiesWarning: If equal atoms, taken for copies, leave a bag less than half of its size.
        """
        with torch.no_grad():
            rows = rows.detach()
            sizes = self._sizes(rows)
            self.largest = sizes.max().item()
            self.sampling_noise = self.noise * self.largest
            if self.merge:
                _warn_of_ties(sizes, self._sizes(rows, merge=False))

    def marginal(
        self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any
    ) -> MultivariateNormal:
        """The distribution of observations, given that of the function."""
        rows = getattr(function_dist, "rows", None)
        if rows is not None:
            params = (rows,)
        return super().marginal(function_dist, *params, **kwargs)

    def excess(self, rows: Tensor) -> Tensor:
        """The excess ``e`` of one over the size, for each of ``batch_shape x N x m*(d+1)`` rows."""
        rows, largest = drop_copies(rows), self.largest
        if torch.is_grad_enabled() and rows.requires_grad:
            return self._excess(rows, largest)
        settings = (self.dim, self.active_dims, self.merge, largest)
        known: Tensor | None = self._memory.recall(settings, rows)
        if known is None:
            known = self._excess(rows, largest).detach()
            self._memory.remember(settings, rows, known)
        return known

    def _excess(self, rows: Tensor, largest: float) -> Tensor:
        return (1 / self._sizes(rows) - 1 / largest).clamp_min(0)

    def _sizes(self, rows: Tensor, *, merge: bool | None = None) -> Tensor:
        clouds = rows if self.active_dims is None else rows[..., list(self.active_dims)]
        merge = self.merge if merge is None else merge
        return effective_sizes(*split_rows(clouds, self.dim), merge=merge)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, **kwargs: Any
    ) -> DiagLinearOperator:
        if kwargs.get("noise") is not None:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        if not params:
            raise ValueError(
                "Expected the clouds, on whose sizes the noise depends: call the likelihood as "
                "likelihood(distribution, rows)."
            )
        rows = params[0] if isinstance(params[0], Tensor) else params[0][0]
        excess = self.excess(rows)
        noise = self.noise + (self.sampling_noise + self.sampling_bias * excess) * excess
        return DiagLinearOperator(noise.expand(torch.broadcast_shapes(noise.shape, base_shape)))


def _warn_of_ties(sizes: Tensor, counted: Tensor) -> None:
    """Warn where sizes after merging equal atoms are much smaller than those that were counted."""
    tied = 2 * sizes < counted
    if bool(tied.any()):
        first = tuple(tied.nonzero()[0].tolist())
        warn(
            f"Equal atoms are taken for copies of one, which leaves {int(tied.sum())} of "
            f"{tied.numel()} bags less than half of their size: bag {first[-1]} counts as "
            f"{sizes[first].item():.1f} measurements instead of {counted[first].item():.1f}. If each "
            "atom is a measurement of its own (rounded values, counts, answers on a scale), give "
            'sampling_noise="ties".',
            TiesWarning,
        )
