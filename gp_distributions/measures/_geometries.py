"""Lines and areas of geometries with ``__geo_interface__``, such as those of shapely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_LINES = {"LineString": False, "LinearRing": True}  # whether each type is closed
_AREAS = ("Polygon", "MultiPolygon")


def is_geometry(value: object) -> bool:
    """Return whether a value is GeoJSON, or has a ``__geo_interface__``, which describes it as such."""
    return hasattr(value, "__geo_interface__") or (isinstance(value, Mapping) and "type" in value)


def lines(geometry: Any, name: str) -> list[tuple[npt.NDArray[np.float64], bool]]:
    """Return the vertices of each line of a geometry, and whether the line is closed.

    The lines of a polygon are its outline and the outlines of its holes. The first vertex of a closed
    line is not repeated at the end.

    Args:
        geometry: An object with ``__geo_interface__``.
        name: Name of the geometry in error messages.

    Raises:
        ValueError: If the geometry has no lines.
    """
    described = _description(geometry)
    found = [
        (
            array[:-1] if closed and len(array) > 1 and (array[0] == array[-1]).all() else array,
            closed,
        )
        for coordinates, closed in _lines(described)
        if len(array := np.asarray(coordinates, dtype=np.float64))
    ]
    if not found:
        raise ValueError(
            f"{name}: expected a geometry made of polygons or lines, got {_kind(described)}."
        )
    return found


def _lines(described: Any) -> Iterator[tuple[Any, bool]]:
    kind = described["type"]
    if kind in _LINES:
        yield described["coordinates"], _LINES[kind]
    elif kind == "Polygon":
        yield from ((ring, True) for ring in described["coordinates"])
    elif kind == "MultiPolygon":
        yield from ((ring, True) for rings in described["coordinates"] for ring in rings)
    elif kind == "MultiLineString":
        yield from ((line, False) for line in described["coordinates"])


def triangles(geometry: Any, name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Divide a polygon, excluding its holes, into triangles; return their vertices and faces.

    Args:
        geometry: An object with ``__geo_interface__``.
        name: Name of the geometry in error messages.

    Raises:
        ImportError: If shapely 2.1 or later is not installed.
        ValueError: If the geometry has no area.
    """
    try:
        from shapely import GEOSException, constrained_delaunay_triangles, get_coordinates
        from shapely.geometry import shape
    except ImportError as error:
        raise ImportError(
            f"{name}: dividing polygons into triangles needs shapely 2.1 or later. Run: "
            'pip install "shapely>=2.1"'
        ) from error

    described = _description(geometry)
    if described["type"] not in _AREAS or not described["coordinates"]:
        raise ValueError(f"{name}: expected a geometry made of polygons, got {_kind(described)}.")
    # Each triangle is a polygon whose first corner is repeated at the end.
    try:
        corners = get_coordinates(constrained_delaunay_triangles(shape(described)))
    except GEOSException as error:
        raise ValueError(
            f"{name}: cannot divide a {_kind(described)} into triangles: {error}. If its outline "
            "crosses itself, repair it with shapely.make_valid(polygon)."
        ) from error
    corners = corners.reshape(-1, 4, 2)[:, :3].reshape(-1, 2)
    vertices, faces = np.unique(corners, axis=0, return_inverse=True)
    return vertices, faces.reshape(-1, 3)


def _description(geometry: Any) -> Any:
    described = geometry if isinstance(geometry, Mapping) else geometry.__geo_interface__
    if described["type"] == "Feature":
        return described["geometry"] or described
    return described


def _kind(described: Any) -> str:
    empty = "" if described.get("coordinates", True) else "an empty "
    advice = ""
    if described["type"] in ("GeometryCollection", "FeatureCollection"):
        advice = (
            ". Pass its polygons or its lines, for example those of shapely.get_parts(collection)"
        )
    return f"{empty}{described['type']}{advice}"
