"""Curves as clouds: vertices or points on them, weighted by arc length, and their normals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._bags import point_arrays
from gp_distributions.measures._shapes import (
    Normals,
    Shape,
    are_computed,
    atoms_of,
    geometry_of,
    is_geometry,
    products,
    rounding,
    with_given,
)
from gp_distributions.measures.arrays import (
    Clouds,
    Data,
    Labels,
    Wording,
    integer,
    point_array,
)
from gp_distributions.measures.tables import in_one_order

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
    if is_geometry(curve):
        described = geometry_of(curve, name, _LINES)
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


def read_curves(
    curves: Iterable[Any],
    *,
    closed: bool,
    atoms: int | None,
    normals: Normals,
    labels: Labels | None,
) -> tuple[Clouds, dict[str, Any]]:
    """Read curves as vertices weighted by arc length, or as points at equal distances along the curve.

    If normals are computed, the middles of segments take the place of vertices.

    Args:
        curves: For each curve, an ``n_i x d`` array of vertices in order, or a geometry.
        closed: Whether a segment connects the last vertex of an array to the first.
        atoms: Number of points at equal distances along each curve; None for the vertices.
        normals: Whether normals follow the positions, of which kind, or the normals themselves.
        labels: Labels of the curves in error messages.

    Returns:
        Clouds, a ``B x n x d`` tensor of points, or of points and normals, a ``B x n`` tensor of
        normalised weights, and the total lengths or areas; and what else is known of them: names of
        coordinates, and the number of columns of normals.

    Raises:
        ValueError: If a curve has fewer than two vertices or no length, or has no normals.
    """
    wording = Wording("Curve", "arc lengths", labels)
    curves, columns = in_one_order(curves, wording)
    read = [curve_lines(c, wording((i,)), closed=closed) for i, c in enumerate(curves)]
    arrays = point_arrays((lines.vertices for lines in read), wording)
    vertices, given = with_given(arrays, normals, atoms, wording)
    least = 1 if all(lines.closed for lines in read) else 2
    count = None if atoms is None else integer(atoms, "atoms", least)
    shapes = []
    for i, (points, lines) in enumerate(zip(vertices, read, strict=True)):
        index = torch.from_numpy(lines.following).to(points.device)
        ends = points[index]
        lengths = torch.linalg.vector_norm(ends - points, dim=-1)
        # A vertex represents half of each adjacent segment.
        shares = (lengths + torch.zeros_like(lengths).index_add(0, index, lengths)) / 2
        found = placed = None
        if are_computed(normals):
            found = curve_normals(points, ends, lines, wording((i,)), oriented=normals is True)
        if count is not None:
            placed = _equally_spaced(points, ends, lengths, count, closed=lines.closed)
        shapes.append(Shape(points, shares, (points + ends) / 2, lengths, found, placed))
    return atoms_of(shapes, given, columns, wording)


def _equally_spaced(
    points: Tensor, ends: Tensor, lengths: Tensor, atoms: int, *, closed: bool
) -> tuple[Tensor, Tensor]:
    """Place points at equal distances along a curve, starting at its first vertex.

    Point k lies at arc length ``k L / atoms`` on a closed curve of length ``L``, and at
    ``k L / (atoms - 1)`` on an open one, which includes both ends. ``lengths`` are those of the segments
    from ``points`` to ``ends``. Returns the points and the segments on which they lie.
    """
    reached = lengths.cumsum(-1)
    parts = torch.linspace(0, 1, atoms + closed, dtype=points.dtype, device=points.device)
    targets = reached[-1] * parts[:atoms]
    # The first segment that ends at or beyond the target. A target of 0 must not find one of length 0.
    least = targets.detach().clamp_min(torch.finfo(points.dtype).tiny)
    index = torch.searchsorted(reached.detach(), least).clamp_max(len(reached) - 1)
    length = lengths[index]
    part = (targets - reached[index] + length) / torch.where(length > 0, length, 1.0)
    return torch.lerp(points[index], ends[index], part.clamp(0, 1).unsqueeze(-1)), index


def curve_normals(
    points: Tensor, ends: Tensor, lines: Lines, name: str, *, oriented: bool
) -> Tensor:
    """Compute the normals of the segments of a curve, times their lengths.

    Args:
        points: An ``n x 2`` tensor of vertices.
        ends: For each vertex, the next.
        lines: The lines of the curve.
        name: Name of the curve in error messages.
        oriented: Whether normals point out of the inside, which holes are not part of.

    Returns:
        An ``n x 2`` tensor, or the ``n x 3`` entries of the products of normals if they have no
        orientation; for each vertex those of the segment from it to the next.

    Raises:
        ValueError: If the curve is not in the plane; or, of oriented ones, if it is open, or a line has
            no signed area.
    """
    if points.shape[1] != 2:
        raise ValueError(
            f"{name}: expected a curve in the plane to compute its normals, got {points.shape[1]} "
            "coordinates. Pass its normals as normals=[...]."
        )
    segments = ends - points
    vectors = torch.stack([segments[:, 1], -segments[:, 0]], dim=-1)
    if not oriented:
        return products(vectors)
    if not lines.closed:
        raise ValueError(
            f"{name}: expected a closed outline, whose normals point outward, got an open curve. Pass "
            'normals="unoriented".'
        )
    start = (points - points.mean(0)).detach()
    steps, line = segments.detach(), torch.from_numpy(lines.line).to(points.device)
    cross = (start[:, 0] * steps[:, 1] - start[:, 1] * steps[:, 0]) / 2
    areas, lengths = (
        points.new_zeros(len(lines.hole)).index_add(0, line, each)
        for each in (cross, torch.linalg.vector_norm(steps, dim=-1))
    )
    if (areas.abs() <= rounding(areas) * lengths.square()).any():
        raise ValueError(
            f"{name}: expected an outline with an inside, got a signed area of 0. Pass "
            'normals="unoriented".'
        )
    signs = areas.sign() * torch.from_numpy(1.0 - 2.0 * lines.hole).to(areas)
    return vectors * signs[line].unsqueeze(-1)
