"""Plots of predictions with intervals against true values."""

from __future__ import annotations

from gp_distributions.numerics.predictions import standardized_errors
from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new


def plot_predictions(
    truth: Values,
    mean: Values,
    std: Values,
    *,
    level: float = 0.95,
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot predicted against true values, with central intervals of normal distributions.

    Dots are predicted means, and the dashed line is where they equal the true values. Intervals that
    contain the true value are blue, those that do not are red; the legend gives the share of the latter.

    Args:
        truth: The ``N`` true values.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations of observations.
        level: Nominal probability of the intervals.
        label: Name and unit of the predicted quantity.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If the numbers of values differ, a value is not finite, or a deviation is not
            positive.

    Example:
        >>> from gp_distributions.plotting import plot_predictions
        >>> ax = plot_predictions(truth=[1, 2, 3], mean=[1.1, 1.9, 4], std=[0.2] * 3, label="drag")
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['predictive mean', '95% interval', 'misses the truth (33.3%)']
    """
    from scipy.stats import norm

    y, m, s = (as_array(values).ravel() for values in (truth, mean, std))
    errors, _ = standardized_errors(y, m, s)
    half = norm.ppf(0.5 + level / 2) * s
    missed = (errors.abs() > norm.ppf(0.5 + level / 2)).numpy()
    ax = given_or_new(ax)
    limits = [min(y.min(), m.min()), max(y.max(), m.max())]
    ax.plot(limits, limits, color="0.4", linewidth=1, linestyle="--", zorder=3)
    for chosen, color, name in (
        (~missed, "#9ecae1", f"{100 * level:g}% interval"),
        (missed, "#b2182b", f"misses the truth ({missed.mean():.1%})"),
    ):
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
    ax.set(xlabel=f"true {label}".strip(), ylabel=f"predicted {label}".strip())
    ax.legend(loc="upper left", frameon=False)
    return ax
