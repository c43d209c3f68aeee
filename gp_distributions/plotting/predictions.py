"""Predictions with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gp_distributions.plotting.drawing import Values, as_array, given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_predictions(
    truth: Values,
    mean: Values,
    std: Values,
    *,
    level: float = 0.95,
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Predicted against true values, with central intervals of a normal distribution.

    Intervals that miss the truth are drawn darker.

    Args:
        truth: The ``N`` true values.
        mean: The ``N`` predictive means.
        std: The ``N`` predictive standard deviations, of an observation.
        level: The probability of the intervals.
        label: What is predicted, with its unit.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If there are not as many of each, or a value is not finite.
    """
    from scipy.stats import norm

    y, m, s = (as_array(values).ravel() for values in (truth, mean, std))
    if not len(y) == len(m) == len(s):
        raise ValueError(
            "Expected as many true values as means and standard deviations, got "
            f"{len(y)}, {len(m)} and {len(s)}."
        )
    unknown = ~np.isfinite([y, m, s]).all(0)
    if unknown.any():
        i = int(unknown.argmax())
        raise ValueError(
            "Expected finite true values, means and standard deviations, but those of cloud "
            f"{i} are {y[i]}, {m[i]} and {s[i]}. Leave out clouds whose true value is unknown."
        )
    half = norm.ppf(0.5 + level / 2) * s
    missed = np.abs(y - m) > half
    ax = given_or_new(ax)
    limits = [min(y.min(), m.min()), max(y.max(), m.max())]
    ax.plot(limits, limits, color="0.4", linewidth=1, linestyle="--", zorder=3)
    for outside, color, name in (
        (False, "#9ecae1", f"{level:.0%} interval"),
        (True, "#b2182b", f"misses the truth ({missed.mean():.1%})"),
    ):
        chosen = missed == outside
        ax.errorbar(
            y[chosen],
            m[chosen],
            yerr=half[chosen],
            fmt="none",
            ecolor=color,
            elinewidth=0.8,
            alpha=0.6,
            label=name,
        )
    ax.scatter(y, m, s=6, color="black", linewidths=0, zorder=4, label="predictive mean")
    ax.set_xlabel(f"true {label}".strip())
    ax.set_ylabel(f"predicted {label}".strip())
    ax.legend(loc="upper left", frameon=False)
    return ax
