"""Plots of the paths of reference atoms during learning."""

from __future__ import annotations

from gp_distributions.measures import PointClouds
from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new


def plot_reference_path(
    path: Values, *, clouds: PointClouds | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the paths of the atoms of a reference during learning, in the first two coordinates.

    Empty circles are the atoms at the start, filled circles those at the end, and lines join the steps
    between. The atoms of ``clouds``, if given, are grey dots.

    Args:
        path: The atoms before the first step and after each step, ``(steps + 1) x m x d``, such as
            ``fit_reference(...).path``.
        clouds: Clouds to draw in the background.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.plotting import plot_reference_path
        >>> steps = 0.1 * np.random.default_rng(0).normal(size=(10, 5, 2))
        >>> ax = plot_reference_path(steps.cumsum(axis=0))
        >>> len(ax.lines)  # a path for each of 5 atoms
        5
    """
    steps = as_array(path)
    ax = given_or_new(ax)
    if clouds is not None:
        x, y = as_array(clouds.points[clouds.weights > 0])[:, :2].T
        ax.scatter(x, y, s=2, color="0.8", linewidths=0, label="data")
    ax.plot(steps[:, :, 0], steps[:, :, 1], color="black", linewidth=0.8)
    for (x, y), face, name in (
        (steps[0, :, :2].T, "white", "start"),
        (steps[-1, :, :2].T, "black", "learned"),
    ):
        ax.scatter(x, y, s=30, facecolor=face, edgecolor="black", zorder=3, label=name)
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(frameon=False)
    return ax
