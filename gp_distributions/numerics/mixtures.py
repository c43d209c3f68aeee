"""Mixtures of normal and Student's t distributions on the line."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gp_distributions.numerics import student_t

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
        fixed = Mixture(*(part.detach() for part in vars(self).values()))
        found = fixed._inverted(level)
        if not (torch.is_grad_enabled() and self._tracked()):
            return found
        # A Newton step from the root, which does not move it, has the gradient of the root.
        return found - (self.cdf(found) - level) / fixed.log_density(found).exp()

    def _tracked(self) -> bool:
        return any(part.requires_grad for part in vars(self).values())

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
