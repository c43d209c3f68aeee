"""Plots of the relevance of blocks and coordinates."""

from __future__ import annotations

import math

from gp_distributions.judging import Relevance
from gp_distributions.plotting.drawing import Axes, given_or_new, name_rows, write_beside


def plot_relevance(
    result: Relevance, *, num: int | None = None, sort: bool = True, ax: Axes | None = None
) -> Axes:
    """Plot how much each block and each coordinate matters, as a bar with its standard error.

    Dark bars are whole blocks, light bars their coordinates. The learned scale of a coordinate, if there
    is one, stands beside its bar.

    Args:
        result: Relevance of the inputs of a model.
        num: Number of coordinates to show for each block: those that matter most. Default: all.
        sort: Whether to sort the coordinates of each block by relevance.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, relevance
        >>> from gp_distributions.plotting import plot_relevance
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(12, 5, 2)))
        >>> model = DistributionGP(clouds, clouds.points[..., 0].mean(-1))
        >>> ax = plot_relevance(relevance(model))
        >>> len(ax.patches)  # a bar for the clouds and one for each coordinate
        3
    """
    shown = []
    for block in result.blocks:
        parts = [entry for entry in result.coordinates if entry.block == block.block]
        most = sorted(parts, key=lambda entry: -entry.loss)[:num]
        shown += [block, *(most if sort else [entry for entry in parts if entry in most])]
    ax = given_or_new(ax, height=0.8 + 0.25 * len(shown))
    for place, entry in enumerate(shown):
        whole = entry.coordinate is None
        ax.barh(
            place,
            entry.loss,
            xerr=entry.error,
            color="0.25" if whole else "0.7",
            error_kw={"ecolor": "#b2182b", "elinewidth": 1.2, "capsize": 2},
        )
        if not math.isnan(entry.scale):
            reach = max(entry.loss, 0.0) + entry.error
            write_beside(ax, f"scale {entry.scale:.2g}", reach, place)
    names = [entry.coordinate or entry.block for entry in shown]
    name_rows(ax, names, "loss in held-out log density (nats per target)")
    return ax
