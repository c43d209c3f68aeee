"""Optimisation traces: the best value so far over evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gp_distributions.plotting.drawing import Values, as_array, given_or_new, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_traces(
    values: Mapping[str, Values],
    *,
    initial: int | None = None,
    optimum: float | None = None,
    label: str = "value",
    ax: Axes | None = None,
) -> Axes:
    """The largest value so far after each evaluation, a line for each method.

    Of several runs the line is the median, and the band about it goes from the least to the largest.

    Args:
        values: For each method the values in the order of evaluation, ``evaluations`` of them or
            ``runs x evaluations``, such as ``ShapeOptimizer.trace``. NaN is an evaluation that failed.
        initial: How many evaluations were random at the start of each run; they are shaded.
        optimum: The largest value there is, drawn as a line.
        label: What the values are, with their unit.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If values have more than two axes.
    """
    ax = given_or_new(ax, height=3.6)
    if initial is not None:
        ax.axvspan(0.5, initial + 0.5, color="0.93", linewidth=0, label="random start")
    if optimum is not None:
        ax.axhline(optimum, color="0.3", linewidth=0.8, label="optimum")
    for number, (name, given) in enumerate(values.items()):
        runs = np.atleast_2d(as_array(given))
        if runs.ndim != 2:
            raise ValueError(f"Expected runs x evaluations of {name!r}, got shape {runs.shape}.")
        best = np.fmax.accumulate(runs, axis=1)
        evaluations = np.arange(1, best.shape[1] + 1)
        style = line_style(number)
        ax.plot(
            evaluations,
            np.median(best, axis=0),
            **style,
            markersize=4,
            markevery=max(1, len(evaluations) // 10),
            label=name if len(best) == 1 else f"{name} (median of {len(best)} runs)",
        )
        if len(best) > 1:
            ax.fill_between(
                evaluations,
                best.min(axis=0),
                best.max(axis=0),
                color=style["color"],
                alpha=0.15,
                linewidth=0,
            )
    ax.set_xlabel("evaluations")
    ax.set_ylabel(f"best {label} so far")
    ax.legend(frameon=False, fontsize=8)
    return ax
