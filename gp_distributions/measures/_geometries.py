"""Curves and meshes as arrays: geometries with ``__geo_interface__``, files and meshes of trimesh."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gp_distributions.measures.arrays import Data, Labels, object_array, point_array

# How deep the lines of a geometry lie in its coordinates, and whether they are closed.
_LINES = {
    "LineString": (0, False),
    "LinearRing": (0, True),
    "MultiLineString": (1, False),
    "Polygon": (1, True),
    "MultiPolygon": (2, True),
}


class Lines(NamedTuple):
    """Polygonal lines that make up one curve.

    Attributes:
        vertices: An ``n x d`` array of the vertices of all lines.
        following: For each vertex, the index of the next one, which is the vertex itself at the end of
            an open line.
        closed: Whether the lines are closed.
        line: For each vertex, the index of its line.
        hole: For each line, whether it is the outline of a hole.
    """

    vertices: Data
    following: npt.NDArray[np.int64]
    closed: bool
    line: npt.NDArray[np.int64]
    hole: npt.NDArray[np.bool_]


def curve_lines(curve: Any, name: str, *, closed: bool) -> Lines:
    """Read the polygonal lines that make up one curve.

    The lines of a polygon are its outline and the outlines of its holes. The first vertex of a closed
    line of a geometry is not repeated at the end.

    Args:
        curve: An ``n x d`` array of vertices in order, or a geometry.
        name: Name of the curve in error messages.
        closed: Whether a segment connects the last vertex of an array to the first.

    Returns:
        The lines.

    Raises:
        ValueError: If the curve is of another kind, or a geometry has no lines.
    """
    if _is_geometry(curve):
        described = _description(curve, name, _LINES)
        depth, closed = _LINES[described["type"]]
        lines = [described["coordinates"]]
        places = [0]
        for _ in range(depth):
            places = [place for part in lines for place in range(len(part))]
            lines = [line for part in lines for line in part]
        arrays = [np.asarray(line, dtype=np.float64) for line in lines]
        if closed:
            arrays = [a[:-1] if len(a) > 1 and (a[0] == a[-1]).all() else a for a in arrays]
        curve = np.concatenate(arrays)
    else:
        curve = point_array(curve, name, "(n, d)")
        arrays, places = [curve], [0]
    sizes = np.array([len(array) for array in arrays])
    last = sizes.cumsum() - 1
    following = np.arange(1, len(curve) + 1)
    following[last] = last + 1 - sizes if closed else last
    # The first line of a polygon is its outline.
    holes = np.array(places) > 0 if closed else np.zeros(len(arrays), dtype=bool)
    return Lines(curve, following, closed, np.arange(len(arrays)).repeat(sizes), holes)


def mesh_arrays(mesh: Any, name: str) -> tuple[Data, Data]:
    """Return the vertices and the faces of a mesh.

    Args:
        mesh: A pair, an object with attributes ``vertices`` and ``faces``, the path of a file that
            trimesh reads, or a polygon, which is divided into triangles, without its holes.
        name: Name of the mesh in error messages.

    Raises:
        ImportError: If the package that reads this kind of mesh is not installed.
        ValueError: If the mesh is of none of these kinds, or it cannot be read.
    """
    if isinstance(mesh, str | PathLike):
        path, trimesh = fspath(mesh), _imported("trimesh", name)
        try:
            mesh = trimesh.load_mesh(path)
            if not len(mesh.faces):
                raise ValueError("it has no faces")
        except Exception as error:  # each format raises errors of its own types
            raise ValueError(f"{name}: cannot read {path!r} as a mesh: {error}") from error
    if hasattr(mesh, "vertices") and hasattr(mesh, "faces"):
        return mesh.vertices, mesh.faces
    if _is_geometry(mesh):
        return _triangles(_description(mesh, name, ("Polygon", "MultiPolygon")), name)
    if isinstance(mesh, Sequence) and len(mesh) == 2:
        return mesh[0], mesh[1]
    raise ValueError(
        f"{name}: expected a pair (vertices, faces), an object with these attributes or a path, got "
        f"{type(mesh).__name__}."
    )


def stems(meshes: Sequence[Any]) -> Labels | None:
    """Return the names of files without folders and endings; None if not all meshes are paths.

    Raises:
        ValueError: If two of them are equal.
    """
    if not all(isinstance(mesh, str | PathLike) for mesh in meshes):
        return None
    found: dict[str, Any] = {}
    for mesh in meshes:
        if (name := Path(mesh).stem) in found:
            raise ValueError(
                "Expected files of different names, which become labels, got "
                f"{fspath(found[name])!r} and {fspath(mesh)!r}. Pass a dictionary {{label: path}}."
            )
        found[name] = mesh
    return object_array(list(found))


def _triangles(described: Any, name: str) -> tuple[Data, Data]:
    """Divide a polygon, excluding its holes, into triangles; return their vertices and faces."""
    shapely = _imported("shapely", name)
    polygon = _imported("shapely.geometry", name).shape(described)
    try:
        corners = shapely.get_coordinates(shapely.constrained_delaunay_triangles(polygon))
    except shapely.GEOSException as error:
        raise ValueError(
            f"{name}: cannot divide a {described['type']} into triangles: {error}. If its outline "
            "crosses itself, repair it with shapely.make_valid(polygon)."
        ) from error
    # Each triangle is a polygon whose first corner is repeated at the end.
    corners = corners.reshape(-1, 4, 2)[:, :3].reshape(-1, 2)
    vertices, faces = np.unique(corners, axis=0, return_inverse=True)
    return vertices, faces.reshape(-1, 3)


def _imported(package: str, name: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{name}: reading it needs {package}. Run: pip install {package}"
        ) from error


def _is_geometry(value: object) -> bool:
    """Return whether a value is GeoJSON, or has a ``__geo_interface__``, which describes it as such."""
    return hasattr(value, "__geo_interface__") or (isinstance(value, Mapping) and "type" in value)


def _description(geometry: Any, name: str, kinds: Collection[str]) -> Any:
    """Return the type and the coordinates of a geometry that is not empty, of one of some kinds."""
    described = geometry if isinstance(geometry, Mapping) else geometry.__geo_interface__
    described = described.get("geometry") or described  # of a feature
    if described["type"] not in kinds or not described["coordinates"]:
        raise ValueError(
            f"{name}: expected a non-empty geometry of the types {', '.join(kinds)}, got "
            f"{described['type']}. Pass the parts of a collection, shapely.get_parts(collection)."
        )
    return described
