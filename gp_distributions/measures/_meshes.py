"""Meshes as clouds: vertices or points on them, weighted by area, and their normals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
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
    object_array,
    real_array,
    to_tensor,
)
from gp_distributions.measures.tables import in_one_order


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
    if is_geometry(mesh):
        return _divided(geometry_of(mesh, name, ("Polygon", "MultiPolygon")), name)
    if isinstance(mesh, Sequence) and len(mesh) == 2:
        return mesh[0], mesh[1]
    raise ValueError(
        f"{name}: expected a pair (vertices, faces), an object with these attributes or a path, got "
        f"{type(mesh).__name__}."
    )


def _divided(described: Any, name: str) -> tuple[Data, Data]:
    """Divide a polygon, excluding its holes, into triangles; return their vertices and faces."""
    shapely = _imported("shapely", name)
    polygon = _imported("shapely.geometry", name).shape(described)
    try:
        corners = shapely.get_coordinates(shapely.constrained_delaunay_divided(polygon))
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
                f"{fspath(found[name])!r} and {fspath(mesh)!r}. Read a file once and repeat its cloud, "
                "clouds[names], or pass a dictionary {label: path}."
            )
        found[name] = mesh
    return object_array(list(found))


def read_meshes(
    meshes: Iterable[Any],
    *,
    atoms: int | None,
    seed: int | np.random.Generator,
    normals: Normals,
    labels: Labels | None,
) -> tuple[Clouds, dict[str, Any]]:
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
        normalised weights, and the total lengths or areas; and what else is known of them: names of
        coordinates, and the number of columns of normals.

    Raises:
        ValueError: If faces are not triangles, refer to a vertex that does not exist, or have no area,
            or there are no normals.
    """
    wording = Wording("Mesh", "areas", labels)
    read = [mesh_arrays(mesh, wording((i,))) for i, mesh in enumerate(meshes)]
    given_points, columns = in_one_order((points for points, _ in read), wording)
    arrays = point_arrays(given_points, wording)
    vertices, given = with_given(arrays, normals, atoms, wording)
    draws = None
    if atoms is not None:
        count = integer(atoms, "atoms")
        draws = 1 - np.random.default_rng(seed).random((len(read), count, 3))  # in (0, 1]
        draws[..., 0] = (draws[..., 0] + np.arange(count)) / count  # one in each of equal parts
    shapes = []
    for i, (points, (_, faces)) in enumerate(zip(vertices, read, strict=True)):
        index = _triangles(faces, points, wording((i,)))
        corners = points[index]
        areas = triangle_areas(corners)
        # A vertex represents a third of each adjacent triangle.
        thirds = (areas / 3).repeat_interleave(3)
        shares = points.new_zeros(len(points)).index_add(0, index.flatten(), thirds)
        found = placed = None
        if are_computed(normals):
            found = mesh_normals(points, index, wording((i,)), oriented=normals is True)
        if draws is not None:
            placed = _sampled(corners, areas, torch.from_numpy(draws[i]).to(points))
        shapes.append(Shape(points, shares, corners.mean(1), areas, found, placed))
    return atoms_of(shapes, given, columns, wording)


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


def mesh_normals(points: Tensor, faces: Tensor, name: str, *, oriented: bool) -> Tensor:
    """Compute the normals of the triangles of a mesh, times their areas.

    Args:
        points: An ``n x 3`` tensor of vertices.
        faces: An ``f x 3`` tensor of the vertices of each triangle.
        name: Name of the mesh in error messages.
        oriented: Whether normals point to the side of a triangle from which its vertices are
            counterclockwise, or outward if the mesh is closed.

    Returns:
        An ``f x 3`` tensor, or the ``f x 6`` entries of the products of normals if they have no
        orientation.

    Raises:
        ValueError: If the mesh is not in space; or, of oriented ones, if two triangles traverse an edge
            in the same direction, or a closed mesh has no volume.
    """
    if points.shape[1] != 3:
        raise ValueError(
            f"{name}: expected a mesh in space to compute its normals, got {points.shape[1]} "
            "coordinates. For normals of outlines use from_curves."
        )
    corners = points[faces]
    sides = corners[:, 1:] - corners[:, :1]
    vectors = torch.linalg.cross(sides[:, 0], sides[:, 1]) / 2
    if not oriented:
        return products(vectors)
    return -vectors if _inside_out(points.detach(), vectors.detach(), faces, name) else vectors


def _inside_out(points: Tensor, vectors: Tensor, faces: Tensor, name: str) -> bool:
    """Return whether a mesh is closed and its triangles are clockwise seen from outside.

    Vertices at one place are one vertex, since some files repeat them for each triangle.
    """
    values = points.numpy(force=True)
    order = np.lexsort(values.T)
    # Numbers of edges of 32 bits are sorted faster.
    place = np.zeros(len(values), np.uint32 if len(values) < 2**16 else np.int64)
    place[order[1:]] = (values[order[1:]] != values[order[:-1]]).any(-1).cumsum()
    index = place[faces.numpy(force=True)]
    kept = (index != np.roll(index, 1, axis=1)).all(-1)
    first, last = index[kept].ravel(), np.roll(index[kept], -1, axis=1).ravel()
    forward, backward = first * len(values) + last, last * len(values) + first
    edges = np.sort(forward)
    if not np.array_equal(edges, np.sort(backward)):
        for edge in {*edges[1:][edges[1:] == edges[:-1]].tolist()}:
            found = (forward == edge).nonzero()[0]
            if len(found) != (backward == edge).sum():
                triangle, side = divmod(int(found[0]), 3)
                given = faces[kept.nonzero()[0][triangle]].roll(-side)[:2].tolist()
                raise ValueError(
                    f"{name}: expected triangles that traverse an edge between them in opposite "
                    f"directions, got the edge {tuple(given)} {len(found)} times in one. Pass "
                    'normals="unoriented", or repair the mesh, for example with '
                    "trimesh.repair.fix_normals."
                )
        return False
    # Any point of a triangle is as far from another along its normal.
    volume = ((points[faces[:, 0]] - points.mean(0)) * vectors).sum() / 3
    bound = torch.linalg.vector_norm(vectors, dim=-1).sum() ** 1.5
    if not volume.abs() > rounding(bound) * bound:
        raise ValueError(
            f"{name}: expected a closed mesh with an inside, got a volume of 0. Pass "
            'normals="unoriented".'
        )
    return bool(volume < 0)
