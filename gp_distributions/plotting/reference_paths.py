"""How a reference moves while it is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gp_distributions.measures import PointClouds
from gp_distributions.plotting.drawing import Values, as_array, given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_reference_path(
    path: Values, *, clouds: PointClouds | None = None, ax: Axes | None = None
) -> Axes:
    """How the atoms of a reference moved while it was learned, in the first two coordinates.

    Args:
        path: The ``steps + 1 x m x d`` atoms, as ``fit_reference(...).path``.
        clouds: :class:`PointClouds` to draw behind.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes.
    """
    steps = as_array(path)
    ax = given_or_new(ax)
    if clouds is not None:
        atoms = as_array(clouds.points[clouds.weights > 0])
        ax.scatter(atoms[:, 0], atoms[:, 1], s=2, color="0.8", linewidths=0, label="data")
    ax.plot(steps[:, :, 0], steps[:, :, 1], color="black", linewidth=0.8)
    for index, marker, face, name in ((0, "o", "white", "start"), (-1, "o", "black", "learned")):
        ax.scatter(
            steps[index, :, 0],
            steps[index, :, 1],
            s=30,
            marker=marker,
            facecolor=face,
            edgecolor="black",
            zorder=3,
            label=name,
        )
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(frameon=False)
    return ax
