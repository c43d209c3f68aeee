"""Scores that tell whether the predicted standard deviations match the errors of predictions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gp_distributions.numerics.predictions import Values, standardized_errors

Groups = Tensor | Sequence[Hashable]

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def coverage(
    y: Values, mean: Values, std: Values, *, level: float = 0.95, groups: Groups | None = None
) -> Tensor | dict[Hashable, Tensor]:
    """Compute the fraction of targets inside the central intervals of normal predictions.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations of observations.
        level: Nominal probability of the intervals.
        groups: The ``N`` group labels, such as the sizes of the bags. Default: no groups.

    Returns:
        The fraction; with ``groups``, a dictionary that maps each label, in sorted order, to the
        fraction in its group.

    Raises:
        ValueError: If shapes differ, a value is not finite, a standard deviation is not positive, or
            the level is not between 0 and 1.

    Example:
        >>> from gp_distributions.metrics.intervals import coverage
        >>> coverage(y=[0.1, -0.3, 2.5, 0.8], mean=[0.0] * 4, std=[1.0] * 4)
        tensor(0.7500, dtype=torch.float64)
    """
    z = standardized_errors(y, mean, std)[0]
    return _grouped(_within(z, [level])[0], groups)


def nlpd(
    y: Values, mean: Values, std: Values, *, groups: Groups | None = None
) -> Tensor | dict[Hashable, Tensor]:
    r"""Compute the mean negative log predictive density of targets under normal predictions, in nats.

    For a target :math:`y`, a mean :math:`m` and a standard deviation :math:`s`, it is

    .. math:: \tfrac12 \log 2 \pi s^2 + \tfrac{(y - m)^2}{2 s^2}.

    Arguments, return value and errors are those of :func:`coverage`.

    Example:
        >>> from gp_distributions.metrics.intervals import nlpd
        >>> nlpd(y=[0.0, 2.0], mean=[0.0, 1.0], std=[1.0, 1.0])
        tensor(1.1689, dtype=torch.float64)
    """
    return _grouped(_nlpd(*standardized_errors(y, mean, std)), groups)


def crps(y: Values, mean: Values, std: Values) -> Tensor:
    r"""Compute the mean continuous ranked probability score of normal predictions.

    For a target :math:`y`, a mean :math:`m`, a standard deviation :math:`s` and
    :math:`z = (y - m) / s`, it is

    .. math::
        \int \big(F(x) - 1[x \ge y]\big)^2 dx
        = s \left( z (2 \Phi(z) - 1) + 2 \varphi(z) - \pi^{-1/2} \right),

    in the units of the targets. As :math:`s \to 0`, the score tends to the absolute error. Arguments
    and errors are those of :func:`coverage`; :func:`calibration` has the score of each group.

    Example:
        >>> from gp_distributions.metrics.intervals import crps
        >>> crps(y=[0.0, 2.0, 1.0], mean=[0.0, 1.0, 1.0], std=[0.5, 0.5, 1.0])
        tensor(0.3590, dtype=torch.float64)

    Source: Gneiting and Raftery 2007, equation (21).
    """
    return _crps(*standardized_errors(y, mean, std)).mean()


def reliability(
    y: Values,
    mean: Values,
    std: Values,
    *,
    levels: Sequence[float] = _LEVELS,
    groups: Groups | None = None,
) -> Tensor | dict[Hashable, Tensor]:
    """Compute the coverage of central intervals at several levels.

    The coverage of calibrated predictions equals the level.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations of observations.
        levels: Nominal probabilities of the intervals.
        groups: The ``N`` group labels, such as the sizes of the bags. Default: no groups.

    Returns:
        A tensor with the coverage at each level; with ``groups``, a dictionary that maps each label to
        such a tensor.

    Raises:
        ValueError: As for :func:`coverage`.

    Example:
        >>> from gp_distributions.metrics.intervals import reliability
        >>> reliability([0.1, -0.3, 2.5, 0.8], [0.0] * 4, [1.0] * 4, levels=[0.2, 0.5, 0.9])
        tensor([0.2500, 0.5000, 0.7500], dtype=torch.float64)
    """
    z = standardized_errors(y, mean, std)[0]
    return _grouped(_within(z, levels), groups)


@dataclass(frozen=True, repr=False)
class Calibration:
    """Scores of normal predictions by group, shown as a table.

    The last group contains all targets.

    Attributes:
        groups: The ``G`` group labels; the last is ``"all"``.
        count: Number of targets in each group.
        coverage: Fraction of targets inside the central intervals of ``level``.
        nlpd: Mean negative log predictive density, in nats.
        crps: Mean continuous ranked probability score, in the units of the targets.
        rmse: Root mean square error of the means, in the units of the targets.
        std: Root of the mean predicted variance, which equals ``rmse`` for calibrated predictions.
        level: Nominal probability of the intervals.

    Example:
        >>> from gp_distributions.metrics.intervals import calibration
        >>> print(calibration(y=[0.0, 2.0, 1.0], mean=[0.2, 1.0, 1.5], std=[0.5, 0.5, 1.0]))
        group  count  cover 0.95  nlpd   crps   rmse    std
          all      3       0.667  1.19  0.402  0.656  0.707
    """

    groups: tuple[Hashable, ...]
    count: Tensor
    coverage: Tensor
    nlpd: Tensor
    crps: Tensor
    rmse: Tensor
    std: Tensor
    level: float

    def __repr__(self) -> str:
        lines = [["group", "count", f"cover {self.level:g}", "nlpd", "crps", "rmse", "std"]]
        columns = (self.count, self.coverage, self.nlpd, self.crps, self.rmse, self.std)
        values = zip(*(column.tolist() for column in columns), strict=True)
        for group, (count, share, *scores) in zip(self.groups, values, strict=True):
            rounded = [f"{share:.3f}", *(f"{score:.3g}" for score in scores)]
            lines.append([str(group), str(count), *rounded])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)


def calibration(
    y: Values, mean: Values, std: Values, *, level: float = 0.95, groups: Groups | None = None
) -> Calibration:
    """Compute all scores of normal predictions, by group and over all targets.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations of observations.
        level: Nominal probability of the intervals.
        groups: The ``N`` group labels, such as ``clouds.sizes``. Default: no groups.

    Returns:
        The scores.

    Raises:
        ValueError: As for :func:`coverage`.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.metrics.intervals import calibration
        >>> y = np.random.default_rng(0).normal(size=1000)
        >>> scores = calibration(y, mean=np.zeros(1000), std=np.ones(1000))
        >>> [round(float(score), 2) for score in (scores.coverage, scores.rmse, scores.std)]
        [0.96, 0.98, 1.0]
    """
    z, std = standardized_errors(y, mean, std)
    members = ({} if groups is None else _members(groups, len(z))) | {"all": range(len(z))}

    def by_group(scores: Tensor) -> Tensor:
        return torch.stack([scores[index].mean() for index in members.values()])

    return Calibration(
        groups=tuple(members),
        count=torch.tensor([len(index) for index in members.values()], device=z.device),
        coverage=by_group(_within(z, [level])[0].to(z)),
        nlpd=by_group(_nlpd(z, std)),
        crps=by_group(_crps(z, std)),
        rmse=by_group((z * std).square()).sqrt(),
        std=by_group(std.square()).sqrt(),
        level=level,
    )


def _within(z: Tensor, levels: Sequence[float]) -> Tensor:
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"Expected levels between 0 and 1, got {levels}.")
    half_widths = torch.special.ndtri(
        (1 + torch.as_tensor(levels, dtype=z.dtype, device=z.device)) / 2
    )
    return (z.abs() <= half_widths.unsqueeze(-1)).double()


def _nlpd(z: Tensor, std: Tensor) -> Tensor:
    return 0.5 * z.square() + std.log() + 0.5 * math.log(2 * math.pi)


def _crps(z: Tensor, std: Tensor) -> Tensor:
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    centred = 2 * torch.special.ndtr(z) - 1
    return std * (z * centred + 2 * density - 1 / math.sqrt(math.pi))


def _grouped(scores: Tensor, groups: Groups | None) -> Tensor | dict[Hashable, Tensor]:
    """Average ``... x N`` scores over all targets, or over the targets of each group."""
    if groups is None:
        return scores.mean(-1)
    members = _members(groups, scores.shape[-1])
    return {group: scores[..., index].mean(-1) for group, index in members.items()}


def _members(groups: Groups, number: int) -> dict[Hashable, list[int]]:
    """Return a dictionary that maps each group label, in sorted order, to the indices of its targets."""
    labels = groups.tolist() if isinstance(groups, Tensor) else list(groups)
    if len(labels) != number:
        raise ValueError(f"Expected a group label for each of {number} bags, got {len(labels)}.")
    places: dict[Any, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    return {label: places[label] for label in sorted(places)}
