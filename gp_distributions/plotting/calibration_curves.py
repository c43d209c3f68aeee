"""Calibration curves: how often intervals hold that claim to hold so often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gp_distributions.calibration import Groups, reliability
from gp_distributions.plotting.drawing import Values, as_array, given_or_new, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = tuple(level / 20 for level in range(1, 20))


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
    """The share of targets within central intervals over the probability that these claim.

    Calibrated predictions lie on the diagonal; below it, intervals are too narrow. Called again with
    the same axes it adds a line.

    Args:
        truth: The ``N`` true values.
        mean: The ``N`` predictive means.
        std: The ``N`` predictive standard deviations, of an observation.
        levels: The probabilities of the intervals.
        groups: A label for each of the ``N``, such as the size of its bag: a line for each group.
        label: Of the line, or what the groups are.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: As :func:`gp_distributions.calibration.reliability`.
    """
    predictions = (as_array(values).ravel() for values in (truth, mean, std))
    shares = reliability(*predictions, levels=levels, groups=groups)
    curves = (
        {f"{label} {group}".strip(): share for group, share in shares.items()}
        if isinstance(shares, dict)
        else {label: shares}
    )
    ax = given_or_new(ax)
    diagonal = "calibrated"
    drawn = [line.get_label() for line in ax.lines]
    if diagonal not in drawn:
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, label=diagonal)
        drawn = [diagonal, *drawn]
    for number, (name, share) in enumerate(curves.items(), start=len(drawn) - 1):
        ax.plot(levels, as_array(share), **line_style(number), markersize=4, label=name or None)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    ax.set_xlabel("probability that intervals claim")
    ax.set_ylabel("share of targets within them")
    ax.legend(frameon=False, fontsize=8)
    return ax
