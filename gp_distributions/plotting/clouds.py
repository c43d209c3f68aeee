"""Plots of a single cloud with its weights, and galleries of clouds or outlines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_distributions.measures import PointClouds, align
from gp_distributions.plotting.drawing import Axes, Values, as_array, given_or_new

_STROKE = 0.06  # length of the strokes of normals, relative to the extent of a cloud
_FEWEST = 8  # the closed line through fewer random points is often simple
_MOST = 1000  # each edge is compared with all others


def plot_cloud(
    cloud: PointClouds,
    values: Values | None = None,
    *,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a cloud in the plane, with its atoms coloured by weight or by other values.

    Marker areas grow with the absolute values. Negative values are drawn as triangles that point down,
    and the colour scale is then symmetric about zero.

    Args:
        cloud: A single cloud, such as ``clouds[0]``.
        values: Values of the ``n`` atoms of the cloud, including padding, such as
            ``sensitivity(model, X).mean_weights[0]``. Default: the weights.
        label: Name and unit of the values.
        ax: Axes to draw on. Default: axes of a new figure.

    Returns:
        The axes. The figure also contains the axes of the colour bar.

    Raises:
        ValueError: If ``cloud`` is not a single cloud in the plane, or the number of values differs from
            the number of atoms.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.plotting import plot_cloud
        >>> points = np.random.default_rng(0).normal(size=(20, 2))
        >>> ax = plot_cloud(PointClouds(points, weights=np.arange(20.0)))
        >>> len(ax.collections[0].get_offsets())  # atoms of weight zero are not drawn
        19
    """
    if cloud.batch_shape or cloud.positions.shape[-1] != 2:
        raise ValueError(f"Expected a single cloud in the plane, got {cloud}.")
    weights = as_array(cloud.weights)
    shown = weights if values is None else as_array(values)
    if shown.shape != weights.shape:
        raise ValueError(
            f"Expected a value for each of {len(weights)} atoms, got an array of shape {shown.shape}."
        )
    label = ("weight" if values is None else "") if label is None else label
    atoms, shown = as_array(cloud.positions)[weights > 0], shown[weights > 0]
    largest = float(np.abs(shown).max())
    signed = (shown < 0).any()
    ax = given_or_new(ax)
    style: dict[str, Any] = {"cmap": "cividis_r", "vmin": 0.0, "vmax": largest}
    if signed:
        style |= {"cmap": "PuOr", "vmin": -largest}
    style |= {"edgecolors": "black", "linewidths": 0.3}
    for chosen, marker in ((shown >= 0, "o"), (shown < 0, "v")):
        if chosen.any():
            values = shown[chosen]
            sizes = 3 + 60 * np.abs(values) / (largest or 1.0)
            x, y = atoms[chosen].T
            marks = ax.scatter(x, y, c=values, s=sizes, marker=marker, **style)
    ax.figure.colorbar(marks, ax=ax, label=label, shrink=0.8)
    ax.margins(0.1)
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def plot_clouds(
    clouds: PointClouds | Sequence[Values],
    *,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    outline: bool | None = None,
    aligned: bool = False,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Plot a gallery of clouds or outlines in the plane, each on its own axes, with equal scales.

    Normals are drawn as short strokes from their atoms; those without orientation are not drawn.

    Args:
        clouds: Clouds, or ``n_i x 2`` arrays of atoms.
        titles: Title of each cloud.
        columns: Number of columns of the gallery.
        outline: Whether to draw the atoms as a filled closed curve rather than as dots. Default: as a
            curve if, for more than half of the clouds, the closed line through the atoms in their order
            does not cross itself and has at least eight atoms. This holds for outlines, and rarely for
            measurements.
        aligned: Whether to draw the clouds turned and moved to the pose of the first. For another
            template, pass ``align(clouds, template)`` as ``clouds``.
        axes: Axes to draw on, one for each cloud. Default: axes of a new figure.

    Returns:
        The axes, one for each cloud.

    Raises:
        ValueError: If there are no clouds, they are not in the plane, or there are fewer axes or titles
            than clouds.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.plotting import plot_clouds
        >>> angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        >>> circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> axes = plot_clouds([circle, circle * [2, 1]], titles=["circle", "ellipse"], columns=2)
        >>> [ax.get_title() for ax in axes]
        ['circle', 'ellipse']

        Measurements, whose order has no meaning, are drawn as dots:

        >>> bags = [np.random.default_rng(seed).normal(size=(30, 2)) for seed in range(2)]
        >>> axes = plot_clouds(bags, columns=2)
        >>> [len(ax.patches) for ax in axes], len(axes[0].collections[0].get_offsets())
        ([0, 0], 30)
    """
    arrays, normals = _atoms(clouds)
    if outline is None:
        outline = 2 * sum(map(is_outline, arrays)) > len(arrays)
    if aligned:
        if not isinstance(clouds, PointClouds):
            read = PointClouds.from_curves if outline else PointClouds.from_list
            clouds = read(arrays)
        arrays, normals = _atoms(align(clouds))
    for name, given in (("axes", axes), ("titles", titles)):
        if given is not None and len(given) < len(arrays):
            raise ValueError(f"Expected {name} for {len(arrays)} clouds, got {len(given)}.")
    if axes is None:
        import matplotlib.pyplot as plt

        rows = -(-len(arrays) // columns)
        figure = plt.figure(figsize=(2.6 * columns, 1.1 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for spare in axes[len(arrays) :]:
            spare.set_axis_off()
    drawn = list(axes)
    for index, (ax, points) in enumerate(zip(drawn, arrays, strict=False)):
        if outline:
            ax.fill(*points.T, facecolor="0.88", edgecolor="black", linewidth=1)
        else:
            ax.scatter(points[:, 0], points[:, 1], s=4, color="black", linewidths=0)
        if normals:
            reach = _STROKE * np.ptp(points, axis=0).max()
            x, y = np.stack([points, points + reach * normals[index]]).transpose(2, 0, 1)
            ax.plot(x, y, color="black", linewidth=0.6)
        ax.set_aspect("equal")
        ax.set_axis_off()
        if titles is not None:
            ax.set_title(titles[index], fontsize=8)
    return drawn[: len(arrays)]


def _atoms(
    clouds: PointClouds | Sequence[Values],
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return the positions of each cloud, without padding, and the normals if they have directions."""
    normals = []
    if isinstance(clouds, PointClouds):
        if len(clouds.batch_shape) != 1:
            raise ValueError(f"Expected clouds along one axis, got {clouds}.")
        if clouds.normals is not None and clouds.num_normals == clouds.positions.shape[-1]:
            pairs = zip(clouds.normals, clouds.weights, strict=True)
            normals = [as_array(n[w > 0]) for n, w in pairs]
        clouds = [x[w > 0] for x, w in zip(clouds.positions, clouds.weights, strict=True)]
    arrays = [as_array(cloud) for cloud in clouds]
    if not arrays:
        raise ValueError("Expected at least one cloud, got none.")
    for index, points in enumerate(arrays):
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(
                f"Cloud {index}: expected an n x 2 array of atoms in the plane, got shape "
                f"{points.shape}. Choose two coordinates to draw, such as "
                "PointClouds(clouds.points[..., :2], clouds.weights)."
            )
    return arrays, normals


def is_outline(points: NDArray[np.float64]) -> bool:
    """Whether the closed line through points in the plane, in their order, does not cross itself.

    Edges that only touch do not cross. Fewer than eight points do not count as an outline, since every
    order of three points, and many an order of few more, gives such a line. More points in random order
    rarely do. Of more than 1000 points, so many at equal steps are looked at.

    Args:
        points: The points, an ``n x 2`` array.
    """
    if len(points) < _FEWEST:
        return False
    points = points[:: -(-len(points) // _MOST)]
    x, y = points.T
    dx, dy = np.roll(points, -1, axis=0).T - points.T
    # The side of the line through each edge on which each point lies: 1, -1, or 0 on it.
    side = np.sign(dx[:, None] * (y - y[:, None]) - dy[:, None] * (x - x[:, None]))
    apart = side * np.roll(side, -1, axis=1) < 0
    return not (apart & apart.T).any()
