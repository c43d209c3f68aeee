"""Areas of triangle meshes, which are padded to the same numbers of vertices and faces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._bags import pad_arrays, point_arrays
from gp_distributions.measures._geometries import is_geometry, triangles
from gp_distributions.measures._validation import Wording, equal_weights, validated
from gp_distributions.measures.arrays import Array, Data, dtype_and_device, integer, real_array


def read_meshes(
    meshes: Iterable[Any],
    *,
    atoms: int | None,
    seed: int | np.random.Generator,
    labels: npt.NDArray[Any] | None,
) -> tuple[Tensor, Tensor]:
    """Read meshes as vertices weighted by area, or as points drawn uniformly from the surface.

    Args:
        meshes: The meshes, in any form that ``vertices_and_faces`` reads.
        atoms: Number of points drawn from each mesh; None for the vertices.
        seed: Random seed or generator.
        labels: Labels of the meshes in error messages.

    Returns:
        A ``B x n x d`` tensor of points and a ``B x n`` tensor of normalised weights.

    Raises:
        ValueError: If faces are not triangles, refer to a vertex that does not exist, or have no area.
    """
    wording = Wording("Mesh", "areas", labels)
    vertices, triples = mesh_arrays(meshes, wording)
    points, _ = pad_arrays(vertices, *dtype_and_device(vertices))
    faces, _ = pad_arrays(triples, torch.int64, points.device)
    mesh = torch.arange(len(points), device=points.device)[:, None, None]
    corners = points[mesh, faces]
    areas = triangle_areas(corners)
    shares = area_weights(areas, faces, points.shape[1])
    points, weights = validated(points, shares, wording)
    if atoms is None:
        return points, weights
    points = sample_triangles(corners, areas, integer(atoms, "atoms"), seed)
    return points, equal_weights(points)


def mesh_arrays(meshes: Iterable[Any], wording: Wording) -> tuple[list[Array], list[Array]]:
    """Return the arrays of vertices and faces of all meshes, not yet converted to tensors.

    Args:
        meshes: The meshes, in any form that ``vertices_and_faces`` reads.
        wording: What a mesh is called in error messages.

    Returns:
        A list with the array of vertices of each mesh, and a list with its array of faces.

    Raises:
        ValueError: If a mesh cannot be read, or a face refers to a vertex that does not exist.
    """
    pairs = [vertices_and_faces(mesh, wording((i,))) for i, mesh in enumerate(meshes)]
    vertices = point_arrays((pair[0] for pair in pairs), wording)
    faces = [real_array(pair[1], f"Faces of mesh {i}") for i, pair in enumerate(pairs)]
    for i, (vertex, face) in enumerate(zip(vertices, faces, strict=True)):
        _check_mesh(vertex, face, wording((i,)))
    return vertices, faces


def _check_mesh(vertices: Array, faces: Array, name: str) -> None:
    count, dim = vertices.shape
    if dim < 2:
        raise ValueError(f"{name}: expected vertices in at least 2 dimensions, got {dim}.")
    if faces.ndim != 2 or faces.shape[0] == 0 or faces.shape[1] != 3:
        raise ValueError(
            f"{name}: expected triangles, faces of shape (f, 3), got shape {tuple(faces.shape)}."
        )
    if "int" not in str(faces.dtype):
        raise ValueError(f"{name}: expected integer faces, got dtype {faces.dtype}.")
    least, most = int(faces.min()), int(faces.max())
    if least < 0 or most >= count:
        raise ValueError(
            f"{name}: expected faces that index its {count} vertices from 0 to {count - 1}, got "
            f"indices from {least} to {most}."
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


def area_weights(areas: Tensor, faces: Tensor, vertices: int) -> Tensor:
    """Compute the area that each vertex represents: a third of each adjacent triangle.

    Args:
        areas: A ``B x f`` tensor of the areas of the triangles.
        faces: A ``B x f x 3`` tensor of the indices of their vertices.
        vertices: Number ``n`` of vertices, including padding.

    Returns:
        A ``B x n`` tensor of areas.
    """
    thirds = (areas / 3).unsqueeze(-1).expand(-1, -1, 3)
    return areas.new_zeros(len(areas), vertices).scatter_add(
        -1, faces.flatten(1), thirds.flatten(1)
    )


def sample_triangles(
    corners: Tensor, areas: Tensor, atoms: int, seed: int | np.random.Generator
) -> Tensor:
    """Draw points uniformly from the surface of each mesh.

    Args:
        corners: A ``B x f x 3 x d`` tensor of the corners of the triangles.
        areas: A ``B x f`` tensor of the areas of the triangles.
        atoms: Number of points drawn from each mesh.
        seed: Random seed or generator.

    Returns:
        A ``B x atoms x d`` tensor of points.
    """
    draws = np.random.default_rng(seed).random((len(areas), atoms, 3))
    uniform = torch.from_numpy(1 - draws).to(areas)  # in (0, 1]: selects no triangle of area 0
    ends = areas.detach().cumsum(-1)
    face = torch.searchsorted(ends, ends[:, -1:] * uniform[..., 0])
    mesh = torch.arange(len(areas), device=areas.device).unsqueeze(-1)
    first, second, third = corners[mesh, face].unbind(-2)
    root, part = uniform[..., 1:2].sqrt(), uniform[..., 2:]
    return (1 - root) * first + root * (1 - part) * second + root * part * third


def vertices_and_faces(mesh: Any, name: str) -> tuple[Data, Data]:
    """Return the vertices and the faces of a mesh.

    Args:
        mesh: A pair, an object with attributes ``vertices`` and ``faces``, the path of a file that
            trimesh reads, or a polygon, which is divided into triangles.
        name: Name of the mesh in error messages.

    Raises:
        ImportError: If the package that reads this kind of mesh is not installed.
        ValueError: If the mesh is of none of these kinds, or its file cannot be read.
    """
    if isinstance(mesh, str | PathLike):
        mesh = _loaded(fspath(mesh), name)
    if hasattr(mesh, "vertices") and hasattr(mesh, "faces"):
        return _array(mesh.vertices), _array(mesh.faces)
    if is_geometry(mesh):
        return triangles(mesh, name)
    if isinstance(mesh, Sequence) and len(mesh) == 2:
        return mesh[0], mesh[1]
    got = f"{len(mesh)} items" if isinstance(mesh, Sequence) else type(mesh).__name__
    raise ValueError(
        f"{name}: expected a pair (vertices, faces), an object with these attributes or a path, got "
        f"{got}."
    )


def _array(values: Any) -> Array:
    # Subclasses of arrays and types of other libraries become plain arrays; tensors are unchanged.
    return values if type(values).__module__.startswith("torch") else np.asarray(values)


def _loaded(path: str, name: str) -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise ImportError(
            f"{name}: reading the file {path!r} needs trimesh. Run: pip install trimesh"
        ) from error
    try:
        mesh = trimesh.load_mesh(path)
        if not len(mesh.faces):
            raise ValueError("it has no faces")
        return mesh
    except Exception as error:  # each format raises errors of its own types
        raise ValueError(f"{name}: cannot read {path!r} as a mesh: {error}") from error
