"""Images, curves and meshes as clouds: weights by intensity, by arc length and by area."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures._bags import pad_arrays, point_arrays
from gp_distributions.measures._geometries import curve_lines, mesh_arrays
from gp_distributions.measures._normals import (
    Normals,
    are_computed,
    curve_normals,
    marked,
    mesh_normals,
    normalised,
    with_given,
)
from gp_distributions.measures._validation import Clouds, Wording, equal_weights, validated
from gp_distributions.measures.arrays import (
    Data,
    Labels,
    integer,
    real_array,
    to_tensor,
    to_tensors,
)

Pair: TypeAlias = tuple[Tensor, Tensor]


def read_images(images: Data) -> Clouds:
    """Read the intensities of images as weights on the grid of their pixels.

    Args:
        images: A ``batch_shape x H x W`` array.

    Returns:
        A ``batch_shape x H*W x 2`` tensor of points, which takes the memory of one grid because all
        images share it, a ``batch_shape x H*W`` tensor of normalised weights, and total intensities.

    Raises:
        ValueError: If an intensity is negative or not finite, an image is all zero, or the last axis
            looks like colour channels.
    """
    (values,) = to_tensors([real_array(images, "Images")])
    shape = tuple(values.shape)
    # Colour images have three channels, or four with opacity.
    coloured = len(shape) > 3 and shape[-1] in (3, 4) and shape[-2] > shape[-1]
    if len(shape) < 2 or 0 in shape or coloured:
        raise ValueError(
            "Images: expected one channel, a non-empty array of shape (..., H, W), got shape "
            f"{shape}. Select one channel of colour images or average them, images[..., :3].mean(-1); "
            "flatten batch axes of images that are as narrow as colour channels."
        )
    height, width = (
        torch.linspace(-(n > 1), n > 1, n, dtype=values.dtype, device=values.device)
        for n in shape[-2:]
    )
    grid = torch.cartesian_prod(height.flip(0), width).flip(-1)
    grid, weights, mass = validated(grid, values.flatten(-2), Wording("Image", "intensities"))
    return grid.expand(*weights.shape, 2), weights, mass


def read_curves(
    curves: Iterable[Any],
    *,
    closed: bool,
    atoms: int | None,
    normals: Normals,
    labels: Labels | None,
) -> tuple[Clouds, int]:
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
        normalised weights, and the total lengths or areas; and the number of columns of normals.

    Raises:
        ValueError: If a curve has fewer than two vertices or no length, or has no normals.
    """
    wording = Wording("Curve", "arc lengths", labels)
    read = [curve_lines(c, wording((i,)), closed=closed) for i, c in enumerate(curves)]
    arrays = point_arrays((lines.vertices for lines in read), wording)
    vertices, marks = with_given(arrays, normals, atoms, wording)
    least = 1 if all(lines.closed for lines in read) else 2
    count = None if atoms is None else integer(atoms, "atoms", least)
    segments, even, shares = [], [], []
    for points, lines in zip(vertices, read, strict=True):
        index = torch.from_numpy(lines.following).to(points.device)
        lengths = torch.linalg.vector_norm(points[index] - points, dim=-1)
        segments.append(((points + points[index]) / 2, lengths))
        # A vertex represents half of each adjacent segment.
        shares.append((lengths + torch.zeros_like(lengths).index_add(0, index, lengths)) / 2)
        if count is not None:
            placed = _equally_spaced(points, points[index], lengths, count, closed=lines.closed)
            even.append(placed)
    found = validated(pad_arrays(vertices), pad_arrays(shares), wording)
    if are_computed(normals):
        marks = [
            normalised(curve_normals(points, lines, wording((i,)), oriented=normals is True), 2)
            for i, (points, lines) in enumerate(zip(vertices, read, strict=True))
        ]
    return _atoms(found, segments, even, marks, normals, wording)


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


def read_meshes(
    meshes: Iterable[Any],
    *,
    atoms: int | None,
    seed: int | np.random.Generator,
    normals: Normals,
    labels: Labels | None,
) -> tuple[Clouds, int]:
    """Read meshes as vertices weighted by area, or as points drawn from equal parts of the surface.

    If normals are computed, the middles of triangles take the place of vertices.

    Args:
        meshes: The meshes, in any form that :func:`mesh_arrays` reads.
        atoms: Number of points drawn from each mesh, one from each of as many parts of equal area; None
            for the vertices.
        seed: Random seed or generator.
        normals: Whether normals follow the positions, of which kind, or the normals themselves.
        labels: Labels of the meshes in error messages.

    Returns:
        Clouds, a ``B x n x d`` tensor of points, or of points and normals, a ``B x n`` tensor of
        normalised weights, and the total lengths or areas; and the number of columns of normals.

    Raises:
        ValueError: If faces are not triangles, refer to a vertex that does not exist, or have no area,
            or there are no normals.
    """
    wording = Wording("Mesh", "areas", labels)
    read = [mesh_arrays(mesh, wording((i,))) for i, mesh in enumerate(meshes)]
    arrays = point_arrays((points for points, _ in read), wording)
    vertices, marks = with_given(arrays, normals, atoms, wording)
    corners, triangles, shares = [], [], []
    for i, (points, (_, given)) in enumerate(zip(vertices, read, strict=True)):
        index = _triangles(given, points, wording((i,)))
        corners.append(index)
        areas = triangle_areas(points[index])
        triangles.append((points[index], areas))
        # A vertex represents a third of each adjacent triangle.
        thirds = (areas / 3).repeat_interleave(3)
        shares.append(points.new_zeros(len(points)).index_add(0, index.flatten(), thirds))
    found = validated(pad_arrays(vertices), pad_arrays(shares), wording)
    drawn = []
    if atoms is not None:
        count = integer(atoms, "atoms")
        draws = 1 - np.random.default_rng(seed).random((len(read), count, 3))  # in (0, 1]
        draws[..., 0] = (draws[..., 0] + np.arange(count)) / count  # one in each of equal parts
        uniform = torch.from_numpy(draws).to(found[0])
        drawn = [_sampled(*each, u) for each, u in zip(triangles, uniform, strict=True)]
    if are_computed(normals):
        marks = [
            normalised(mesh_normals(points, index, wording((i,)), oriented=normals is True), 3)
            for i, (points, index) in enumerate(zip(vertices, corners, strict=True))
        ]
    middles = [(each.mean(1), areas) for each, areas in triangles]
    return _atoms(found, middles, drawn, marks, normals, wording)


def _triangles(given: Data, points: Tensor, name: str) -> Tensor:
    """Convert the faces of a mesh to an ``f x 3`` tensor of the vertices of triangles.

    Raises:
        ValueError: If they are not triangles, or refer to a vertex that does not exist.
    """
    faces = to_tensor(real_array(given, f"Faces of {name.lower()}"), torch.float64, points.device)
    index, found = faces.long(), f"shape {tuple(faces.shape)}"
    if index.shape[1:] == (3,) and len(index):
        wrong = ((index < 0) | (index >= len(points)) | (index != faces)).any(-1).nonzero()
        if not len(wrong):
            return index
        found = f"{faces[wrong[0, 0]].tolist()} as face {int(wrong[0, 0])}"
    raise ValueError(
        f"{name}: expected triangles, faces of shape (f, 3) that index its vertices from 0 to "
        f"{len(points) - 1}, got {found}."
    )


def _atoms(
    found: Clouds,
    parts: Sequence[Pair],
    placed: Sequence[Pair],
    marks: Sequence[Tensor],
    normals: Normals,
    wording: Wording,
) -> tuple[Clouds, int]:
    """Return vertices, or placed points, or the middles of parts if their normals are computed.

    Unlike a vertex, a segment or triangle has one normal, also beside sharp edges.
    """
    if placed:
        points = torch.stack([points for points, _ in placed])
        found = points, equal_weights(points), found[2]
        marks = [mark[on] for mark, (_, on) in zip(marks, placed, strict=False)]
    elif are_computed(normals):
        middles, sizes = zip(*parts, strict=True)
        found = validated(pad_arrays(middles), pad_arrays(sizes), wording)
    return marked(found, marks, wording)


def triangle_areas(corners: Tensor) -> Tensor:
    """Compute the areas of triangles in any dimension as half of base times height.

    The height is computed by projection, because the Gram determinant would lose half of the digits
    on thin triangles. Areas within rounding of zero are set to zero.

    Args:
        corners: A ``batch_shape x 3 x d`` tensor of the corners of the triangles.

    Returns:
        A ``batch_shape`` tensor of areas.
    """
    base = corners[..., 1, :] - corners[..., 0, :]
    side = corners[..., 2, :] - corners[..., 0, :]
    square = base.square().sum(-1, keepdim=True)
    along = (base * side).sum(-1, keepdim=True) / torch.where(square > 0, square, 1.0)
    length = torch.linalg.vector_norm(base, dim=-1)
    area = length * torch.linalg.vector_norm(side - along * base, dim=-1) / 2
    rounding = 8 * torch.finfo(area.dtype).eps * length * torch.linalg.vector_norm(side, dim=-1)
    return torch.where(area > rounding, area, 0.0)


def _sampled(corners: Tensor, areas: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return points of the surface of a mesh and their faces for ``atoms x 3`` uniform numbers."""
    ends = areas.detach().cumsum(-1)
    face = torch.searchsorted(ends, ends[-1] * uniform[:, 0])
    first, second, third = corners[face].unbind(-2)
    root, part = uniform[:, 1:2].sqrt(), uniform[:, 2:]
    return (1 - root) * first + root * (1 - part) * second + root * part * third, face
