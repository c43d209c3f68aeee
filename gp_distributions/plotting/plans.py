"""Plots of transport plans between a cloud and a reference."""

from __future__ import annotations

from gp_distributions.distances.transport import TransportDistance
from gp_distributions.measures import PointClouds
from gp_distributions.plotting.drawing import Axes, as_array, given_or_new

# Lines of less than this share of the largest mass would not be visible.
_VISIBLE = 0.02


def plot_plan(distance: TransportDistance, cloud: PointClouds, *, ax: Axes | None = None) -> Axes:
    """Plot the transport plan between a cloud in the plane and the reference of a distance.

    Each line joins an atom of the cloud, a black dot, with an atom of the reference, a circle whose area
    grows with its weight. The darker the line, the more mass it carries; lines with less than 2% of the
    largest mass are left out. So the lines at a circle show what this atom of the reference sees.

    Args:
        distance: A :class:`SinkhornPotential` or :class:`LinearTransport`.
        cloud: A single cloud, such as ``clouds[0]``.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: If ``cloud`` is not a single cloud in the plane.

    Example:
        >>> from gp_distributions import PointClouds, ReferenceMeasure, SinkhornPotential
        >>> from gp_distributions.plotting import plot_plan
        >>> cloud = PointClouds([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
        >>> reference = ReferenceMeasure([[0.0, 0.1], [1.0, 0.5]], weights=[1, 2])
        >>> ax = plot_plan(SinkhornPotential(reference, epsilon=0.01), cloud)
        >>> len(ax.collections[0].get_segments())  # two atoms are sent to the second circle
        3

    Source: Allain, Gousset and Heurtin 2024, whose figure 2 has plans between two distributions.
    """
    if cloud.batch_shape or cloud.dim != 2:
        raise ValueError(f"Expected a single cloud in the plane, got {cloud}.")
    from matplotlib.collections import LineCollection

    masses = as_array(distance.plan(cloud.pack().unsqueeze(0))[0])
    atoms, circles = as_array(cloud.points), as_array(distance.reference.points)
    weights = as_array(distance.reference.weights)
    shares = masses / masses.max()
    rows, columns = (shares > _VISIBLE).nonzero()
    order = shares[rows, columns].argsort()  # dark lines are drawn last
    rows, columns = rows[order], columns[order]
    ax = given_or_new(ax)
    shades = [str(0.9 - 0.9 * share) for share in shares[rows, columns]]
    lines = list(zip(atoms[rows], circles[columns], strict=True))
    ax.add_collection(LineCollection(lines, colors=shades, linewidths=0.8, zorder=1))
    used = as_array(cloud.weights) > 0
    x, y = atoms[used].T
    ax.scatter(x, y, s=8, color="black", linewidths=0, zorder=2, label="cloud")
    sizes = 20 + 80 * weights / weights.max()
    x, y = circles.T
    ax.scatter(
        x,
        y,
        s=sizes,
        facecolor="white",
        edgecolor="#b2182b",
        linewidths=1.5,
        zorder=3,
        label="reference",
    )
    ax.margins(0.1)
    ax.set_aspect("equal", adjustable="datalim")
    ax.legend(frameon=False)
    return ax
