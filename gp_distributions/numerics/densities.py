"""Distributions on the line: mixtures of normals, truncation, and targets given latent values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import scipy
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Binomial,
    Categorical,
    Distribution,
    MixtureSameFamily,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from torch.special import ndtri

_LOG_ROOT = math.log(2 * math.pi) / 2

# Steps stop when they are this many rounding errors long. The first _NEWTON steps are Newton steps where
# possible; later ones, which are rarely needed, are bisections.
_ROUNDING, _NEWTON, _STEPS = 4, 30, 100


@dataclass(frozen=True)
class Mixture:
    r"""Mixtures of normal distributions.

    .. math:: p(y) = \sum_k w_k\, N(y \mid m_k, s_k^2)

    Attributes:
        weights: Weights :math:`w_k`, which sum to one; they broadcast with ``location``.
        location: Means :math:`m_k`, a ``batch_shape x K`` tensor.
        scale: Standard deviations :math:`s_k`, of the shape of ``location``.
    """

    weights: Tensor
    location: Tensor
    scale: Tensor

    def mean(self) -> Tensor:
        """Return the mean, of shape ``batch_shape``."""
        return (self.weights * self.location).sum(-1)

    def variance(self) -> Tensor:
        """Return the variance, of shape ``batch_shape``: that within members and that between them."""
        between = (self.location - self.mean().unsqueeze(-1)).square()
        return (self.weights * (self.scale.square() + between)).sum(-1)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the distribution function at values that broadcast with ``batch_shape``."""
        return (self.weights * _below(self._standardized(value))).sum(-1)

    def log_density(self, value: Tensor) -> Tensor:
        """Return log densities of values that broadcast with ``batch_shape``."""
        densities = -0.5 * self._standardized(value).square() - self._scale.log()
        return torch.logsumexp(densities + self.weights.log(), dim=-1) - _LOG_ROOT

    def quantile(self, level: float) -> Tensor:
        """Invert the distribution function, by Newton steps within a bracket that every step narrows.

        Args:
            level: A probability in (0, 1).

        Returns:
            A tensor of shape ``batch_shape``.
        """
        # The quantile lies between the smallest and the largest quantile of members.
        unit = NormalDist().inv_cdf(level)
        quantiles = self.location + self.scale * unit
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

    def _standardized(self, value: Tensor) -> Tensor:
        return (value.unsqueeze(-1) - self.location) / self._scale

    @property
    def _scale(self) -> Tensor:
        """Standard deviations that are positive, also where values are known."""
        return self.scale.clamp_min(torch.finfo(self.scale.dtype).tiny)


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


# Latent values are integrated over so many standard deviations on each side, by at least and at most so
# many points, of which neighbours are so many standard deviations of the target apart.
_REACH, _FEWEST, _MOST, _STEP = 6.0, 65, 4097, 0.6

# Steps that halve the bracket of a quantile.
_HALVINGS = 80


def integrated(
    conditional: Callable[[Tensor], Distribution], mean: Tensor, std: Tensor
) -> MixtureSameFamily:
    """Integrate a distribution of targets over normal latent values by the trapezoidal rule.

    Args:
        conditional: Function of ``N x K`` latent values that returns the distributions of targets.
        mean: The ``N`` means of the latent values.
        std: Their standard deviations.

    Returns:
        ``N`` mixtures of ``K`` distributions; there are more where targets determine latent values well.
    """
    nodes = torch.linspace(-_REACH, _REACH, _FEWEST).to(mean)
    found = conditional(mean.unsqueeze(-1) + std.unsqueeze(-1) * nodes)
    moved = found.mean.diff(dim=-1).abs() / found.stddev[..., 1:]
    moved = moved[..., nodes[1:].abs() < _REACH / 2]
    apart = float(moved.nan_to_num(0.0, 0.0).max()) if moved.numel() else 0.0
    if apart > _STEP:
        number = 2 * round(min(_FEWEST * apart / _STEP, _MOST) / 2) + 1
        nodes = torch.linspace(-_REACH, _REACH, number).to(mean)
        found = conditional(mean.unsqueeze(-1) + std.unsqueeze(-1) * nodes)
    weights = (-nodes.square() / 2).expand(*mean.shape, len(nodes))
    return MixtureSameFamily(
        Categorical(logits=weights, validate_args=False), found, validate_args=False
    )


def cdf(distribution: Distribution, value: Tensor) -> Tensor:
    """Return distribution functions, also of those distributions for which PyTorch has none.

    Args:
        distribution: A distribution of single targets, or a mixture of them.
        value: Values that broadcast with its batch shape.

    Raises:
        NotImplementedError: If neither PyTorch nor this function knows it.
    """
    if isinstance(distribution, MixtureSameFamily):
        parts = cdf(distribution.component_distribution, value.unsqueeze(-1))
        return (parts * distribution.mixture_distribution.probs).sum(-1)
    if isinstance(distribution, StudentT):
        z = (value - distribution.loc) / distribution.scale
        return _by_scipy(scipy.special.stdtr, distribution.df, z)
    if not isinstance(distribution, Poisson | Binomial | NegativeBinomial | Bernoulli):
        return distribution.cdf(value)
    whole = value.floor()
    if isinstance(distribution, Poisson):
        inside = torch.special.gammaincc(whole.clamp_min(0) + 1, distribution.rate)
        return inside.masked_fill(whole < 0, 0.0)
    if isinstance(distribution, NegativeBinomial):  # of which PyTorch counts the successes
        shapes = whole.clamp_min(0) + 1, distribution.total_count, distribution.probs
        return _by_scipy(scipy.special.betaincc, *shapes).masked_fill(whole < 0, 0.0)
    trials = getattr(distribution, "total_count", torch.ones_like(distribution.probs))
    within = torch.minimum(whole, trials - 1).clamp_min(0)
    shapes = within + 1, (trials - within).clamp_min(1), distribution.probs
    inside = _by_scipy(scipy.special.betaincc, *shapes)
    return inside.masked_fill(whole < 0, 0.0).masked_fill(whole >= trials, 1.0)


def quantile(distribution: Distribution, level: float) -> Tensor:
    """Return the smallest values at which distribution functions reach a level.

    Args:
        distribution: A distribution with a finite mean; of whole numbers, it starts at zero.
        level: A probability in (0, 1).

    Returns:
        A tensor of the batch shape.
    """
    whole = bool(getattr(distribution.support, "is_discrete", False))
    mean = distribution.mean
    scale = distribution.variance.nan_to_num(1.0, 1.0).sqrt() + (1.0 if whole else 0.0)
    low, high = (-torch.ones_like(mean) if whole else mean - scale), mean + scale
    for _ in range(_HALVINGS):
        below, above = cdf(distribution, low) >= level, cdf(distribution, high) < level
        if not bool((below | above).any()):
            break
        scale = 2 * scale
        low = torch.where(below & (not whole), low - scale, low)
        high = torch.where(above, high + scale, high)
    low, high = (low.floor(), high.ceil()) if whole else (low, high)
    for _ in range(_HALVINGS):
        middle = ((low + high) / 2).floor() if whole else (low + high) / 2
        if whole and bool((high - low <= 1).all()):
            break
        reached = cdf(distribution, middle) >= level
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return high


def _by_scipy(function: Callable[..., Any], *arguments: Tensor) -> Tensor:
    """Evaluate a function of SciPy, without gradients."""
    arrays = (part.detach().double().cpu().numpy() for part in arguments)
    return torch.as_tensor(function(*arrays)).to(arguments[-1])
