"""Arc length along polygonal curves, which are padded to the same number of vertices."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gp_distributions.measures._bags import occupied, pad_arrays, point_arrays
from gp_distributions.measures._validation import Naming, equal_weights, validated
from gp_distributions.measures.arrays import Data, dtype_and_device, integer


def read_curves(
    curves: Iterable[Data], *, closed: bool, atoms: int | None
) -> tuple[Tensor, Tensor]:
    """Read vertices weighted by arc length, or points at equal arc length.

    Args:
        curves: For each curve, an ``n_i x d`` array of vertices in order.
        closed: Whether a segment connects the last vertex to the first.
        atoms: Number of points at equal arc length; None for the vertices.

    Returns:
        A ``B x n x d`` tensor of points and a ``B x n`` tensor of normalised weights.

    Raises:
        ValueError: If a curve has fewer than two vertices or no length.
    """
    arrays = point_arrays(curves, "Curve")
    for i, array in enumerate(arrays):
        if len(array) < 2:
            raise ValueError(f"Curve {i}: expected at least 2 vertices, got 1.")
    points, sizes = pad_arrays(arrays, *dtype_and_device(arrays))
    lengths = arc_length_weights(points, sizes, closed=closed)
    points, weights = validated(points, lengths, Naming("Curve", "arc lengths"))
    if atoms is None:
        return points, weights
    count = integer(atoms, "atoms", 1 if closed else 2)
    points = equally_spaced(points, sizes, count, closed=closed)
    return points, equal_weights(points)


def arc_length_weights(points: Tensor, sizes: Tensor, *, closed: bool) -> Tensor:
    """Arc length that each vertex represents: half of each adjacent segment.

    Args:
        points: A ``B x n x d`` tensor of vertices, padded beyond the ``sizes``.
        sizes: Numbers of vertices of the ``B`` curves.
        closed: Whether a segment connects the last vertex to the first.

    Returns:
        A ``B x n`` tensor of lengths, which are zero in the padding.
    """
    segments, _ = _segments(points, sizes, closed=closed)
    last = (sizes - 1).unsqueeze(-1)
    before = torch.cat([segments.gather(-1, last), segments[:, :-1]], dim=-1)
    return (segments + before * occupied(sizes, points.shape[1])) / 2


def equally_spaced(points: Tensor, sizes: Tensor, atoms: int, *, closed: bool) -> Tensor:
    """Points at equal arc length along each curve, starting at its first vertex.

    Point k lies at arc length ``k L / atoms`` on a closed curve of length ``L``, and at
    ``k L / (atoms - 1)`` on an open one, which includes both ends.

    Args:
        points: A ``B x n x d`` tensor of vertices, padded beyond the ``sizes``.
        sizes: Numbers of vertices of the ``B`` curves.
        atoms: Number of points on each curve; at least 2 on an open curve.
        closed: Whether a segment connects the last vertex to the first.

    Returns:
        A ``B x atoms x d`` tensor of points.
    """
    segments, following = _segments(points, sizes, closed=closed)
    ends = segments.cumsum(-1)
    fractions = torch.linspace(
        0, 1, atoms + 1 if closed else atoms, dtype=points.dtype, device=points.device
    )[:atoms]
    targets = ends[:, -1:] * fractions
    # The first segment that ends at or beyond the target; its length is 0 only for target 0.
    index = torch.searchsorted(ends.detach(), targets.detach())
    length = segments.gather(-1, index)
    part = (targets - ends.gather(-1, index) + length) / torch.where(length > 0, length, 1.0)
    index = index.unsqueeze(-1).expand(-1, -1, points.shape[-1])
    part = part.clamp(0, 1).unsqueeze(-1)
    return torch.lerp(points.gather(1, index), following.gather(1, index), part)


def _segments(points: Tensor, sizes: Tensor, *, closed: bool) -> tuple[Tensor, Tensor]:
    """Length of the segment that starts at each vertex (0 if there is none), and its end point."""
    width = points.shape[1]
    inner = occupied(sizes - 1, width)
    following = torch.where(inner.unsqueeze(-1), points.roll(-1, dims=1), points[:, :1])
    lengths = torch.linalg.vector_norm(following - points, dim=-1)
    return lengths * (occupied(sizes, width) if closed else inner), following
