"""Plots of predictions, their calibration, comparisons of candidates, and the progress of searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gp_distributions.metrics.entries import ComparisonEntry
from gp_distributions.metrics.intervals import Groups, calibration, reliability
from gp_distributions.numerics.predictions import standardized_errors
from gp_distributions.plotting.drawing import (
    Axes,
    Values,
    as_array,
    given_or_new,
    line_style,
    name_rows,
    write_beside,
)


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
        ValueError: As for :func:`gp_distributions.metrics.intervals.reliability`.

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


def plot_comparison(entries: Sequence[ComparisonEntry], *, ax: Axes | None = None) -> Axes:
    """Plot the difference in held-out log density of each model to the best.

    Each point has a bar of one standard error. The area of a point grows with the stacking weight, which
    stands beside it if it is at least 0.005. Models that failed have a cross at zero.

    Args:
        entries: Scores of the models, in the order in which they are shown: ``comparison.table``.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Example:
        >>> from gp_distributions.plotting import plot_comparison
        >>> from gp_distributions.metrics import ComparisonEntry
        >>> best = ComparisonEntry("sw2", difference=0.0, error=0.0, weight=0.8)
        >>> other = ComparisonEntry("mmd", difference=-0.3, error=0.1, weight=0.2)
        >>> ax = plot_comparison([best, other])
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['sw2', 'mmd']
    """
    ax = given_or_new(ax, height=0.8 + 0.25 * len(entries))
    for place, entry in enumerate(entries):
        if entry.failed:
            ax.plot(0, place, marker="x", color="0.6", linestyle="none")
            continue
        ax.errorbar(
            entry.difference,
            place,
            xerr=entry.error,
            marker="o",
            markersize=3 + 9 * entry.weight**0.5,
            color="black",
            ecolor="#b2182b",
            elinewidth=1.2,
            capsize=2,
        )
        if entry.weight >= 0.005:
            write_beside(ax, f"{entry.weight:.2f}", entry.difference + entry.error, place)
    ax.margins(x=0.12)  # room for the weights
    label = "log density minus that of the best (nats per cloud)"
    name_rows(ax, [entry.name for entry in entries], label)
    return ax


def plot_traces(
    values: Mapping[str, Values],
    *,
    initial: int | None = None,
    optimum: float | None = None,
    label: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """Plot the largest value so far after each evaluation, with a line for each method.

    For several runs of a method, the line is the median of the runs, and the band spans their minimum
    and maximum.

    Args:
        values: Values of each method in the order of evaluation, of shape ``evaluations`` or
            ``runs x evaluations``, such as ``ShapeOptimizer.trace``. NaN marks a failed evaluation.
        initial: Number of random evaluations at the start of each run. They are shaded.
        optimum: Largest possible value, drawn as a horizontal line.
        label: Name and unit of the values.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If the values of a method have more than two axes.

    Example:
        >>> from gp_distributions.plotting import plot_traces
        >>> ax = plot_traces({"random": [1, 0, 3], "search": [2, 5, 4]}, optimum=6)
        >>> ax.lines[2].get_ydata().tolist()
        [2.0, 5.0, 5.0]
    """
    ax = given_or_new(ax, height=3.6)
    if initial is not None:
        ax.axvspan(0.5, initial + 0.5, color="0.93", linewidth=0, label="random start")
    if optimum is not None:
        ax.axhline(optimum, color="0.3", linewidth=0.8, label="optimum")
    for number, (name, given) in enumerate(values.items()):
        runs = np.atleast_2d(as_array(given))
        if runs.ndim != 2:
            raise ValueError(
                f"Expected values of {name!r} as runs x evaluations, got shape {runs.shape}."
            )
        best = np.fmax.accumulate(runs, axis=1)
        evaluations = np.arange(1, best.shape[1] + 1)
        style = line_style(number)
        every = max(1, len(evaluations) // 10)
        described = name if len(best) == 1 else f"{name} (median of {len(best)} runs)"
        median = np.median(best, axis=0)
        ax.plot(evaluations, median, **style, markersize=4, markevery=every, label=described)
        if len(best) > 1:
            band = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
            ax.fill_between(evaluations, best.min(axis=0), best.max(axis=0), **band)
    ax.set(xlabel="evaluations", ylabel=f"best {label} so far")
    ax.legend(frameon=False, fontsize=8)
    return ax
