"""Calibration curves: observed against nominal coverage of intervals."""

from __future__ import annotations

from collections.abc import Sequence

from gp_distributions.judging.intervals import Groups, calibration, reliability
from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new, line_style

_LEVELS = tuple(level / 20 for level in range(1, 20))
_CHANCE = 0.95
_BAND = "95% range of chance"


def plot_calibration(
    truth: Values,
    mean: Values,
    std: Values,
    *,
    levels: Sequence[float] = _LEVELS,
    groups: Groups | None = None,
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot the observed against the nominal coverage of central intervals.

    The line of calibrated predictions is the diagonal; where a line is below the diagonal, intervals are
    too narrow. A band of the same colour about the diagonal shows what chance explains: at each level,
    calibrated predictions of as many independent targets lie within it with a probability of at least
    95%. It is wide if there are few targets. Another call with the same axes adds a line and its band.

    Args:
        truth: The ``N`` true values.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations of observations.
        levels: Nominal probabilities of the intervals.
        groups: The ``N`` group labels, such as the sizes of the bags; each group has its own line.
            Default: one line for all values.
        label: Label of the line, or prefix of the group labels.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: As for :func:`gp_distributions.judging.intervals.reliability`.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.plotting import plot_calibration
        >>> truth = np.random.default_rng(0).normal(size=50)
        >>> ax = plot_calibration(truth, np.zeros(50), np.ones(50), label="model")
        >>> [line.get_label() for line in ax.lines]
        ['calibrated', 'model']
    """
    from scipy.stats import binom

    predictions = [as_array(values).ravel() for values in (truth, mean, std)]
    shares = reliability(*predictions, levels=levels, groups=groups)
    scores = calibration(*predictions, groups=groups)
    curves = shares if isinstance(shares, dict) else {"": shares}
    ax = given_or_new(ax)
    if all(line.get_label() != "calibrated" for line in ax.lines):
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, label="calibrated")
    inner, first = sorted(levels), len(ax.lines) - 1
    for number, (group, share) in enumerate(curves.items()):
        count = int(scores.count[number])
        style = line_style(first + number)
        name = f"{label} {group}".strip()
        ax.plot(levels, as_array(share), **style, markersize=4, label=name or None)
        # The band in which the coverage of calibrated predictions lies by chance.
        low, high = ([0, *(end / count), 1] for end in binom.interval(_CHANCE, count, inner))
        named = any(band.get_label() == _BAND for band in ax.collections)
        ax.fill_between(
            [0, *inner, 1],
            low,
            high,
            color=style["color"],
            alpha=0.1,
            linewidth=0,
            label=None if named else _BAND,
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="nominal coverage of intervals", ylabel="observed coverage")
    ax.legend(frameon=False, fontsize=8)
    return ax
