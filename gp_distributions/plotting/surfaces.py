"""Plot and file of a mesh coloured by values at its vertices, such as where a surface matters."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gp_distributions.plotting.drawing import Axes, Values, as_array

_SIDE = 50.0  # degrees between the view and the light


def plot_surface(
    vertices: Values,
    faces: Values,
    values: Values,
    *,
    label: str = "",
    limit: float | None = None,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a mesh in space, coloured by values at its vertices and lit from a side.

    If there are negative values, the colour scale is symmetric about zero.

    Args:
        vertices: The ``n x 3`` vertices.
        faces: The ``f x 3`` vertices of triangles.
        values: Values of the ``n`` vertices, such as ``surface_sensitivity(...).density``.
        label: Name and unit of the values.
        limit: The largest absolute value of the colour scale. Default: the 90% quantile, since values at
            edges can be many times as large as those of the faces.
        path: Path of a PLY file of the coloured mesh and the values, for ParaView or MeshLab; it needs
            trimesh. Default: none is written.
        ax: Axes with ``projection="3d"`` to draw on, whose view is kept. Default: axes of a new figure.

    Returns:
        The axes. The figure also contains the axes of the colour bar.

    Raises:
        ValueError: If the number of values is not that of the vertices.

    Example:
        >>> from gp_distributions.plotting import plot_surface
        >>> corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        >>> faces = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
        >>> ax = plot_surface(corners, faces, [0.0, 1.0, -1.0, 0.5], label="effect on drag in N/mm")
        >>> len(ax.collections[0].get_facecolor())
        4
    """
    import matplotlib.pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LightSource
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    points, triangles, shown = as_array(vertices), as_array(faces).astype(int), as_array(values)
    if shown.shape != points.shape[:1]:
        raise ValueError(
            f"Expected a value for each of {len(points)} vertices, got shape {shown.shape}."
        )
    space: Any = plt.figure(figsize=(7.0, 4.2)).add_subplot(projection="3d") if ax is None else ax
    limit = limit or float(np.quantile(np.abs(shown), 0.9))
    signed = (shown < 0).any()
    colours = ScalarMappable(cmap="PuOr" if signed else "cividis_r")
    colours.set_clim(-limit if signed else 0.0, limit)
    light = LightSource(space.azim + _SIDE, space.elev)
    painted = colours.to_rgba(shown[triangles].mean(1))
    mesh = Poly3DCollection(
        points[triangles], facecolors=painted, shade=True, lightsource=light, antialiased=False
    )
    space.add_collection3d(mesh)
    low, high = points.min(0), points.max(0)
    space.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    space.set_box_aspect(np.maximum(high - low, 1e-3 * np.ptp(points)), zoom=0.95)
    space.set_axis_off()
    space.figure.colorbar(colours, ax=space, label=label, shrink=0.6)
    if path is not None:
        import trimesh

        options = {"process": False, "vertex_attributes": {"value": shown.astype(np.float32)}}
        rgba = colours.to_rgba(shown, bytes=True)
        trimesh.Trimesh(points, triangles, vertex_colors=rgba, **options).export(path)
    return space
