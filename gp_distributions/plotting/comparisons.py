"""Plots of the scores of several models."""

from __future__ import annotations

from collections.abc import Sequence

from gp_distributions.judging.entries import ComparisonEntry
from gp_distributions.plotting.drawing import Axes, given_or_new, name_rows, write_beside


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
        >>> from gp_distributions.judging import ComparisonEntry
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
