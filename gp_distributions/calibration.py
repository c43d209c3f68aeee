"""Whether predicted distributions are as wide as errors are large, for all bags or by their size."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Groups = Tensor | Sequence[Hashable]
Values = Tensor | ArrayLike

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def coverage(
    y: Values, mean: Values, std: Values, *, level: float = 0.95, groups: Groups | None = None
) -> Tensor | dict[Hashable, Tensor]:
    """The share of targets within central intervals of normal predictions.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations, those of observations.
        level: The probability that the intervals claim.
        groups: A label for each of the ``N``, such as the size of its bag. Default: none.

    Returns:
        The share, or with ``groups`` a dictionary of the shares in each, in the order of labels.

    Raises:
        ValueError: If shapes differ, a value is not finite, a standard deviation is not positive, or
            the level is not between 0 and 1.
    """
    z = _standardised(y, mean, std)[0]
    return _grouped(_within(z, [level])[0], groups)


def nlpd(
    y: Values, mean: Values, std: Values, *, groups: Groups | None = None
) -> Tensor | dict[Hashable, Tensor]:
    r"""The mean negative log density of targets under normal predictions, in nats.

    .. math:: \tfrac12 \log 2 \pi s^2 + \tfrac{(y - m)^2}{2 s^2}

    Args and errors are those of :func:`coverage`.
    """
    return _grouped(_nlpd(*_standardised(y, mean, std)), groups)


def crps(
    y: Values, mean: Values, std: Values, *, groups: Groups | None = None
) -> Tensor | dict[Hashable, Tensor]:
    r"""The mean continuous ranked probability score of normal predictions, in units of targets.

    With :math:`z = (y - m) / s`,

    .. math::
        \int \big(F(x) - 1[x \ge y]\big)^2 dx
        = s \left( z (2 \Phi(z) - 1) + 2 \varphi(z) - \pi^{-1/2} \right),

    which tends to the absolute error as :math:`s \to 0`. Args and errors are those of :func:`coverage`.

    Source: Gneiting and Raftery 2007, equation (21).
    """
    return _grouped(_crps(*_standardised(y, mean, std)), groups)


def reliability(
    y: Values,
    mean: Values,
    std: Values,
    *,
    levels: Sequence[float] = _LEVELS,
    groups: Groups | None = None,
) -> Tensor | dict[Hashable, Tensor]:
    """The coverage of central intervals at several levels; calibrated, it is the levels.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations, those of observations.
        levels: The probabilities that the intervals claim.
        groups: A label for each of the ``N``. Default: none.

    Returns:
        The coverage at each of the levels, or with ``groups`` a dictionary of such tensors.

    Raises:
        ValueError: As :func:`coverage`.
    """
    z = _standardised(y, mean, std)[0]
    return _grouped(_within(z, levels), groups)


@dataclass(frozen=True)
class Calibration:
    """Calibration of normal predictions in each group, all of them last; ``str`` is a table.

    Attributes:
        groups: The ``G`` labels, the last of which is ``"all"``.
        count: The ``G`` numbers of targets.
        coverage: The ``G`` shares of targets within central intervals of ``level``.
        nlpd: The ``G`` mean negative log densities, in nats.
        crps: The ``G`` mean continuous ranked probability scores, in units of targets.
        rmse: The ``G`` root mean square errors of the means, in units of targets.
        std: The ``G`` roots of the mean predicted variances, which ``rmse`` is if they are right.
        level: The probability that the intervals claim.
    """

    groups: tuple[Hashable, ...]
    count: Tensor
    coverage: Tensor
    nlpd: Tensor
    crps: Tensor
    rmse: Tensor
    std: Tensor
    level: float

    def __str__(self) -> str:
        columns = ["group", "count", f"cover {self.level:g}", "nlpd", "crps", "rmse", "std"]
        lines = [columns]
        for i, group in enumerate(self.groups):
            scores = (self.nlpd[i], self.crps[i], self.rmse[i], self.std[i])
            lines.append(
                [str(group), str(int(self.count[i])), f"{float(self.coverage[i]):.3f}"]
                + [f"{float(score):.3g}" for score in scores]
            )
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )


def calibration(
    y: Values, mean: Values, std: Values, *, level: float = 0.95, groups: Groups | None = None
) -> Calibration:
    """All scores of normal predictions at once.

    Args:
        y: The ``N`` targets.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations, those of observations.
        level: The probability that intervals claim.
        groups: A label for each of the ``N``, such as ``clouds.sizes``. Default: none.

    Returns:
        The scores by group, and of all targets.

    Raises:
        ValueError: As :func:`coverage`.
    """
    z, std = _standardised(y, mean, std)
    scores: dict[str, Tensor] = {
        "count": torch.ones_like(z),
        "coverage": _within(z, [level])[0].to(z),
        "nlpd": _nlpd(z, std),
        "crps": _crps(z, std),
        "rmse": (z * std).square(),
        "std": std.square(),
    }
    members = {} if groups is None else _members(groups, len(z))
    members["all"] = list(range(len(z)))

    def by_group(reduce: Callable[[Tensor], Tensor], name: str) -> Tensor:
        return torch.stack([reduce(scores[name][index]) for index in members.values()])

    return Calibration(
        groups=tuple(members),
        count=by_group(torch.sum, "count").long(),
        level=level,
        **{name: by_group(torch.mean, name) for name in ("coverage", "nlpd", "crps")},
        **{name: by_group(torch.mean, name).sqrt() for name in ("rmse", "std")},
    )


def _standardised(y: Values, mean: Values, std: Values) -> tuple[Tensor, Tensor]:
    """Errors in standard deviations, and these, in the widest of the precisions."""
    values = [_tensor(v) for v in (y, mean, std)]
    dtype = functools.reduce(torch.promote_types, [v.dtype for v in values])
    target, centre, std = (v.to(values[-1].device, dtype) for v in values)
    if not target.shape == centre.shape == std.shape or std.dim() != 1:
        raise ValueError(
            "Expected targets, means and standard deviations of one shape (N,), got "
            f"{tuple(target.shape)}, {tuple(centre.shape)} and {tuple(std.shape)}."
        )
    bad = ~(target.isfinite() & centre.isfinite() & std.isfinite() & (std > 0))
    if bool(bad.any()):
        i = int(bad.nonzero()[0])
        raise ValueError(
            "Expected finite targets and means and standard deviations > 0, but those of bag "
            f"{i} are {float(target[i])}, {float(centre[i])} and {float(std[i])}."
        )
    return (target - centre) / std, std


def _tensor(values: Values) -> Tensor:
    """Values of whatever kind; columns of data frames are read-only arrays, which are copied."""
    tensor = values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    return tensor if tensor.is_floating_point() else tensor.double()


def _within(z: Tensor, levels: Sequence[float]) -> Tensor:
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"Expected levels between 0 and 1, got {levels}.")
    half_widths = torch.special.ndtri((1 + torch.as_tensor(levels).to(z)) / 2)
    return z.abs() <= half_widths.unsqueeze(-1)


def _nlpd(z: Tensor, std: Tensor) -> Tensor:
    return 0.5 * z.square() + std.log() + 0.5 * math.log(2 * math.pi)


def _crps(z: Tensor, std: Tensor) -> Tensor:
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    centred = 2 * torch.special.ndtr(z) - 1
    return std * (z * centred + 2 * density - 1 / math.sqrt(math.pi))


def _grouped(scores: Tensor, groups: Groups | None) -> Tensor | dict[Hashable, Tensor]:
    """Means of ``... x N`` scores, of all or in each group."""
    scores = scores.double() if scores.dtype == torch.bool else scores
    if groups is None:
        return scores.mean(-1)
    members = _members(groups, scores.shape[-1])
    return {group: scores[..., index].mean(-1) for group, index in members.items()}


def _members(groups: Groups, number: int) -> dict[Hashable, list[int]]:
    """The indices of each label, in the order of labels."""
    labels = groups.tolist() if isinstance(groups, Tensor) else list(groups)
    if len(labels) != number:
        raise ValueError(f"Expected a group for each of {number} bags, got {len(labels)}.")
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    return dict(sorted(members.items(), key=lambda item: item[0]))  # type: ignore[arg-type,return-value]
