"""Distribution functions and quantiles of targets, whose parameters depend on a normal latent value."""

from __future__ import annotations

from collections.abc import Callable
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
