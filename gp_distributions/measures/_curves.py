"""Arc length along polygonal curves, which are padded to the same number of vertices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._bags import occupied, pad_arrays, point_arrays
from gp_distributions.measures._geometries import is_geometry, lines
from gp_distributions.measures._validation import Wording, equal_weights, validated
from gp_distributions.measures.arrays import Data, dtype_and_device, integer, point_array, shown


@dataclass(frozen=True)
class _Lines:
    """Polygonal lines that make up one curve.

    Attributes:
        vertices: An ``n x d`` array of the vertices of all lines.
        following: For each vertex, the index of the next vertex; at the end of an open line, the index
            of the vertex itself.
        closed: Whether all lines are closed.
    """

    vertices: Data
    following: npt.NDArray[np.int64]
    closed: bool


def read_curves(
    curves: Iterable[Any],
    *,
    closed: bool,
    atoms: int | None,
    labels: npt.NDArray[Any] | None,
) -> tuple[Tensor, Tensor]:
    """Read curves as vertices weighted by arc length, or as points at equal distances along the curve.

    Args:
        curves: For each curve, an ``n_i x d`` array of vertices in order, or a geometry.
        closed: Whether a segment connects the last vertex of an array to the first.
        atoms: Number of points at equal distances along each curve; None for the vertices.
        labels: Labels of the curves in error messages.

    Returns:
        A ``B x n x d`` tensor of points and a ``B x n`` tensor of normalised weights.

    Raises:
        ValueError: If a curve has fewer than two vertices or no length.
    """
    wording = Wording("Curve", "arc lengths", labels)
    read = [_lines(curve, wording((i,)), closed=closed) for i, curve in enumerate(curves)]
    arrays = point_arrays((curve.vertices for curve in read), wording)
    for i, array in enumerate(arrays):
        if len(array) < 2:
            raise ValueError(f"{wording((i,))}: expected at least 2 vertices, got 1.")
    points, sizes = pad_arrays(arrays, *dtype_and_device(arrays))
    following, _ = pad_arrays([curve.following for curve in read], torch.int64, points.device)
    segments, ends = _segments(points, sizes, following)
    points, weights = validated(points, arc_length_weights(segments, following), wording)
    if atoms is None:
        return points, weights
    shut = torch.tensor([curve.closed for curve in read], device=points.device)
    count = integer(atoms, "atoms", 1 if bool(shut.all()) else 2)
    points = equally_spaced(points, segments, ends, count, closed=shut)
    return points, equal_weights(points)


def _lines(curve: Any, name: str, *, closed: bool) -> _Lines:
    if isinstance(curve, str | bytes):
        raise ValueError(
            f"{name}: expected vertices or a geometry, got {shown(curve)}. Read text with "
            "shapely.from_wkt or shapely.from_geojson, and bytes with shapely.from_wkb."
        )
    if is_geometry(curve):
        arrays, loops = zip(*lines(curve, name), strict=True)
        curve = np.concatenate(arrays)
    else:
        curve = point_array(curve, name, "(n, d)")
        arrays, loops = (curve,), (closed,)
    sizes = np.array([len(array) for array in arrays])
    last = sizes.cumsum() - 1
    following = np.arange(1, len(curve) + 1)
    following[last] = np.where(loops, last + 1 - sizes, last)
    return _Lines(curve, following, all(loops))


def arc_length_weights(segments: Tensor, following: Tensor) -> Tensor:
    """Compute the arc length that each vertex represents: half of each adjacent segment.

    Args:
        segments: A ``B x n`` tensor of the lengths of the segments that start at the vertices.
        following: A ``B x n`` tensor of the indices of the vertices where these segments end.

    Returns:
        A ``B x n`` tensor of lengths.
    """
    return (segments + torch.zeros_like(segments).scatter_add(-1, following, segments)) / 2


def equally_spaced(
    points: Tensor, segments: Tensor, ends: Tensor, atoms: int, *, closed: Tensor
) -> Tensor:
    """Place points at equal distances along each curve, starting at its first vertex.

    Point k lies at arc length ``k L / atoms`` on a closed curve of length ``L``, and at
    ``k L / (atoms - 1)`` on an open one, which includes both ends.

    Args:
        points: A ``B x n x d`` tensor of vertices.
        segments: A ``B x n`` tensor of the lengths of the segments that start at the vertices.
        ends: A ``B x n x d`` tensor of the points where these segments end.
        atoms: Number of points on each curve; at least 2 on an open curve.
        closed: A tensor of ``B`` booleans, true for closed curves.

    Returns:
        A ``B x atoms x d`` tensor of points.
    """
    around, along = (
        torch.linspace(0, 1, count, dtype=points.dtype, device=points.device)[:atoms]
        for count in (atoms + 1, atoms)
    )
    lengths = segments.cumsum(-1)
    targets = lengths[:, -1:] * torch.where(closed.unsqueeze(-1), around, along)
    # The first segment that ends at or beyond the target; it has length 0 only if the target is 0.
    index = torch.searchsorted(lengths.detach(), targets.detach())
    length = segments.gather(-1, index)
    part = (targets - lengths.gather(-1, index) + length) / torch.where(length > 0, length, 1.0)
    index = index.unsqueeze(-1).expand(-1, -1, points.shape[-1])
    part = part.clamp(0, 1).unsqueeze(-1)
    return torch.lerp(points.gather(1, index), ends.gather(1, index), part)


def _segments(points: Tensor, sizes: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
    """Return the length of the segment that starts at each vertex, or 0, and the segment's end point."""
    ends = points.gather(1, following.unsqueeze(-1).expand_as(points))
    lengths = torch.linalg.vector_norm(ends - points, dim=-1)
    return lengths * occupied(sizes, points.shape[1]), ends
