"""Densities on the line and of jointly normal variables."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.special import ndtri

from gp_distributions.numerics import student_t
from gp_distributions.rows.contents import is_tracked

# Steps stop when they are this many rounding errors long. The first _NEWTON steps are Newton steps where
# possible; later ones, which are rarely needed, are bisections.
_ROUNDING, _NEWTON, _STEPS = 4, 30, 100


@dataclass(frozen=True)
class Mixture:
    r"""Mixtures of normal and Student's t distributions.

    .. math:: p(y) = \sum_k w_k\, t_{\nu_k}((y - m_k) / s_k) / s_k, \qquad t_\infty = \mathcal N(0, 1)

    Attributes:
        weights: Weights :math:`w_k`, which sum to one; they broadcast with ``location``.
        location: Locations :math:`m_k`, a ``batch_shape x K`` tensor.
        scale: Scales :math:`s_k`, positive, of the shape of ``location``.
        degrees: Degrees of freedom :math:`\nu_k`, a tensor of shape ``K``; infinity for normal members.
    """

    weights: Tensor
    location: Tensor
    scale: Tensor
    degrees: Tensor

    def mean(self) -> Tensor:
        """Return the mean, of shape ``batch_shape``."""
        return (self.weights * self.location).sum(-1)

    def variance(self) -> Tensor:
        """Return the variance, of shape ``batch_shape``: that within members and that between them."""
        within = self.scale.square() * variance_factors(self.degrees)
        between = (self.location - self.mean().unsqueeze(-1)).square()
        return (self.weights * (within + between)).sum(-1)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the distribution function at values that broadcast with ``batch_shape``."""
        return (self.weights * student_t.cdf(self._standardized(value), self.degrees)).sum(-1)

    def log_density(self, value: Tensor) -> Tensor:
        """Return log densities of values that broadcast with ``batch_shape``."""
        densities = student_t.log_density(self._standardized(value), self.degrees)
        return torch.logsumexp(densities - self.scale.log() + self.weights.log(), dim=-1)

    def quantile(self, level: float) -> Tensor:
        """Invert the distribution function, by Newton steps within a bracket that every step narrows.

        Args:
            level: A probability in (0, 1).

        Returns:
            A tensor of shape ``batch_shape``, with gradients.
        """
        parts = vars(self).values()
        fixed = Mixture(*(part.detach() for part in parts))
        found = fixed._inverted(level)
        if not is_tracked(*parts):
            return found
        # A Newton step from the root, which does not move it, has the gradient of the root.
        return found - (self.cdf(found) - level) / fixed.log_density(found).exp()

    def _standardized(self, value: Tensor) -> Tensor:
        return (value.unsqueeze(-1) - self.location) / self.scale

    def _inverted(self, level: float) -> Tensor:
        # The quantile lies between the smallest and the largest quantile of members.
        quantiles = self.location + self.scale * student_t.quantile(level, self.degrees)
        there = self.weights > 0
        low = quantiles.masked_fill(~there, torch.inf).amin(-1)
        high = quantiles.masked_fill(~there, -torch.inf).amax(-1)
        tolerance = _ROUNDING * torch.finfo(low.dtype).eps * torch.maximum(low.abs(), high.abs())
        value = (self.weights * quantiles).sum(-1).clamp(low, high)
        for step in range(_STEPS):
            excess = self.cdf(value) - level
            low, high = torch.where(excess < 0, value, low), torch.where(excess > 0, value, high)
            proposed = value - excess / self.log_density(value).exp()
            inside = (proposed >= low) & (proposed <= high) & (step < _NEWTON)
            proposed = torch.where(inside, proposed, (low + high) / 2)
            proposed = torch.where(excess == 0, value, proposed)
            moved, value = (proposed - value).abs(), proposed
            if bool((moved <= tolerance).all()):
                break
        return value


def variance_factors(degrees: Tensor) -> Tensor:
    r"""Return the variances :math:`\nu / (\nu - 2)` of standard Student's t distributions.

    Args:
        degrees: Degrees of freedom :math:`\nu`, a tensor of any shape. The variance is infinite for at
            most two, and one for infinitely many.

    Returns:
        A tensor of the shape of ``degrees``.
    """
    finite = torch.where(degrees > 2, degrees / (degrees - 2), torch.inf)
    return torch.where(degrees.isinf(), 1.0, finite)


# Intervals farther from zero than this hold no probability that floating-point numbers can represent.
_FARTHEST = 30.0


def truncated(normals: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    r"""Map standard normal variables to truncated ones, in ascending order.

    .. math:: z = \Phi^{-1}\bigl(\Phi(a) + (\Phi(b) - \Phi(a))\, \Phi(x)\bigr)

    Args:
        normals: Values :math:`x`.
        lower: Lower ends :math:`a`, which may be infinite, and broadcast with ``normals``.
        upper: Upper ends :math:`b`, likewise.

    Returns:
        The values :math:`z`, between the ends.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.densities import truncated
        >>> x = torch.tensor([-1.0, 0.0, 1.0, 9.0], dtype=torch.float64)
        >>> truncated(x, torch.tensor(0.0), torch.tensor(1.0)).round(decimals=3).tolist()
        [0.136, 0.442, 0.797, 1.0]
    """
    below, within, above = _probabilities(lower, upper)
    x = normals.double()
    left, right = below + within * _below(x), above + within * _below(-x)
    # Each tail keeps its digits.
    found = torch.where(left < right, ndtri(left), -ndtri(right))
    return found.clamp(lower.to(found), upper.to(found)).to(normals)


def untruncated(values: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return the standard normal variables that :func:`truncated` maps to some values.

    Args:
        values: Values between the ends.
        lower: Lower ends, which may be infinite.
        upper: Upper ends, likewise.
    """
    below, within, above = _probabilities(lower, upper)
    z = values.double()
    left, right = (_below(z) - below) / within, (_below(-z) - above) / within
    found = torch.where(left < right, ndtri(left.clamp_min(0)), -ndtri(right.clamp_min(0)))
    return found.to(values)


def _probabilities(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the probabilities below, within and above intervals."""
    a = lower.double().clamp(max=_FARTHEST)
    b = upper.double().clamp(min=-_FARTHEST)
    within = torch.where(a > 0, _below(-a) - _below(-b), _below(b) - _below(a))
    return _below(a), within, _below(-b)


def _below(normals: Tensor) -> Tensor:
    """Return the probability below values; ``torch.special.ndtr`` is zero at -9."""
    return 0.5 * torch.erfc(normals * -math.sqrt(0.5))


def conditional_moments(
    across: Tensor, variances: Tensor, *, given: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of each of some values of a Gaussian process, given others with noise.

    With the errors :math:`e` of the given values, their covariance matrix :math:`K` and the covariances
    :math:`c_i` of value :math:`i` with them, the error :math:`e_i` has the distribution

    .. math:: e_i \mid e \sim N(c_i^\top K^{-1} e,\; v_i - c_i^\top K^{-1} c_i).

    Args:
        across: Covariances :math:`c_i`, ``batch_shape x N x M``.
        variances: Prior variances :math:`v_i` of the function, ``batch_shape x M``.
        given: Differences :math:`e` of the given values from their prior means, ``batch_shape x N``.
        factor: Lower Cholesky factor of :math:`K`, noise included, ``batch_shape x N x N``.

    Returns:
        Two ``batch_shape x M`` tensors; the mean is that of the difference from the prior mean.

    Source: Rasmussen and Williams 2006, eq. 2.22 to 2.24.
    """
    solved = torch.cholesky_solve(across, factor)
    mean = (solved.mT @ given.unsqueeze(-1)).squeeze(-1)
    return mean, (variances - (across * solved).sum(-2)).clamp_min(0)
