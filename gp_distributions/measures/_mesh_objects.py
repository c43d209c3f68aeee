"""Meshes as objects with vertices and faces, such as those of trimesh, and in files."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from gp_distributions.measures._geometries import is_geometry, triangles
from gp_distributions.measures.arrays import Array, Data


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
