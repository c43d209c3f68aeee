"""One cloud with its weights, or a gallery of clouds and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gp_distributions.measures import PointClouds
from gp_distributions.plotting.drawing import Values, as_array, given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LARGEST = 60.0  # area of a marker, in square points


def plot_cloud(
    cloud: PointClouds,
    values: Values | None = None,
    *,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One cloud in the plane, its atoms coloured by weight or by other values.

    Areas of markers are proportional to the absolute value. Where values have both signs, atoms below
    zero are drawn as triangles that point down, and colours are symmetric about zero.

    Args:
        cloud: A single cloud, such as ``clouds[0]``.
        values: A value for each of its ``n`` atoms, padding included, such as
            ``sensitivity(model, X).mean_weights[0]``. Default: the weights.
        label: What the values are, with their unit.
        ax: Where to draw. Default: a new figure.

    Returns:
        The axes, whose figure has a second one for the colours.

    Raises:
        ValueError: If it is no single cloud in the plane, or there is not one value for each atom.
    """
    if cloud.batch_shape or cloud.dim != 2:
        raise ValueError(f"Expected a single cloud in the plane, got {cloud}.")
    weights = as_array(cloud.weights)
    shown = weights if values is None else as_array(values)
    if shown.shape != weights.shape:
        raise ValueError(
            f"Expected a value for each of {len(weights)} atoms, got values of shape {shown.shape}."
        )
    label = ("weight" if values is None else "") if label is None else label
    atoms, shown = as_array(cloud.points)[weights > 0], shown[weights > 0]
    largest = float(np.abs(shown).max())
    signed = bool((shown < 0).any())
    ax = given_or_new(ax)
    marks = [
        ax.scatter(
            atoms[chosen, 0],
            atoms[chosen, 1],
            c=shown[chosen],
            s=3 + _LARGEST * np.abs(shown[chosen]) / (largest or 1.0),
            marker=marker,
            cmap="PuOr" if signed else "cividis_r",
            vmin=-largest if signed else 0.0,
            vmax=largest,
            edgecolors="black",
            linewidths=0.3,
        )
        for chosen, marker in ((shown >= 0, "o"), (shown < 0, "v"))
        if chosen.any()
    ]
    ax.figure.colorbar(marks[-1], ax=ax, label=label, shrink=0.8)
    ax.margins(0.1)
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def plot_clouds(
    clouds: PointClouds | Sequence[Values],
    *,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    outline: bool = True,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """A gallery of clouds or outlines in the plane, one to an axes, all on one scale.

    Args:
        clouds: The clouds, or arrays of ``n_i x 2`` atoms.
        titles: One for each.
        columns: Of the gallery.
        outline: Whether atoms are joined and filled as a closed curve rather than dotted.
        axes: Where to draw, one for each. Default: a new figure.

    Returns:
        The axes, one for each cloud.

    Raises:
        ValueError: If clouds are not in the plane, or there are fewer axes or titles than clouds.
    """
    arrays = _atoms(clouds)
    for name, given in (("axes", axes), ("titles", titles)):
        if given is not None and len(given) < len(arrays):
            raise ValueError(f"Expected {name} for {len(arrays)} clouds, got {len(given)}.")
    drawn = _grid(len(arrays), columns) if axes is None else list(axes)
    for index, (ax, points) in enumerate(zip(drawn, arrays, strict=False)):
        if outline:
            ax.fill(points[:, 0], points[:, 1], facecolor="0.88", edgecolor="black", linewidth=1)
        else:
            ax.scatter(points[:, 0], points[:, 1], s=4, color="black", linewidths=0)
        ax.set_aspect("equal")
        ax.set_axis_off()
        if titles is not None:
            ax.set_title(titles[index], fontsize=8)
    return drawn[: len(arrays)]


def _atoms(clouds: PointClouds | Sequence[Values]) -> list[NDArray[np.float64]]:
    """The atoms of each cloud, without padding."""
    if not isinstance(clouds, PointClouds):
        arrays = [as_array(cloud) for cloud in clouds]
        for index, points in enumerate(arrays):
            if points.ndim != 2 or points.shape[1] != 2:
                raise ValueError(
                    f"Cloud {index}: expected an array of shape (n, 2), got {points.shape}. Choose two "
                    "coordinates to draw."
                )
        return arrays
    if len(clouds.batch_shape) != 1:
        raise ValueError(f"Expected clouds along one axis, got {clouds}.")
    if clouds.dim != 2:
        raise ValueError(
            f"Expected clouds in the plane, got {clouds}. Choose two coordinates to draw: "
            "PointClouds(clouds.points[..., :2], clouds.weights)."
        )
    occupied = as_array(clouds.weights) > 0
    return [points[kept] for points, kept in zip(as_array(clouds.points), occupied, strict=True)]


def _grid(count: int, columns: int) -> list[Axes]:
    """``count`` axes of one scale, the rest of their last row left empty."""
    import matplotlib.pyplot as plt

    rows = -(-count // columns)
    _, grid = plt.subplots(
        rows,
        columns,
        figsize=(2.6 * columns, 1.1 * rows),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_axis_off()
    return axes
