"""Plots of optimisation traces: the best value so far against the number of evaluations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new, line_style


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
