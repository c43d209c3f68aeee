"""Surfaces whose vertices can move: outward normals, areas, and the clouds they are read as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gp_distributions.measures._curves import curve_lines, curve_normals, read_curves
from gp_distributions.measures._meshes import mesh_normals, read_meshes, triangles
from gp_distributions.measures._shapes import Normals, normalised
from gp_distributions.measures.arrays import Data, given_points
from gp_distributions.measures.point_clouds import PointClouds


@dataclass(frozen=True, eq=False)
class Surface:
    """A mesh or a closed outline. Vertices at one place are one, since some files repeat them.

    Attributes:
        places: The distinct positions of vertices, ``p x d``.
        index: The place of each of ``n`` vertices.
        faces: An ``f x 3`` tensor of the vertices of triangles; ``None`` for an outline.
        normals: Unit normals at the places, ``p x d``: means of those of adjacent parts by their sizes.
        shares: The area or length that each place represents, of length ``p``.
    """

    places: Tensor
    index: Tensor
    faces: Tensor | None
    normals: Tensor
    shares: Tensor

    @classmethod
    def read(cls, vertices: Data, faces: Data | None, dim: int) -> Surface:
        """Read a mesh, or an outline in the plane, in ``dim`` coordinates.

        Raises:
            ValueError: If it cannot have oriented normals.
        """
        points = given_points(vertices, "vertices", ("n", dim)).cpu()
        places, index = points.unique(dim=0, return_inverse=True)
        if faces is None:
            name = "The outline"
            lines = curve_lines(points, name, closed=True)
            following = torch.from_numpy(lines.following)
            parts, found = torch.stack([torch.arange(len(points)), following], dim=-1), None
            vectors = curve_normals(points, points[following], lines, name, oriented=True)
        else:
            name = "The mesh"
            parts = found = triangles(faces, points, name)
            vectors = mesh_normals(points, parts, name, oriented=True)
        # Each end of a segment has half of it, each corner of a triangle a third.
        ends, count = index[parts].flatten(), parts.shape[1]
        shared = (vectors / count).repeat_interleave(count, dim=0)
        sums = torch.zeros_like(places).index_add(0, ends, shared)
        sizes = torch.linalg.vector_norm(shared, dim=-1)
        shares = places.new_zeros(len(places)).index_add(0, ends, sizes)
        return cls(places, index, found, normalised(sums, dim), shares)

    def cloud(self, places: Tensor, marks: int, atoms: int | None) -> PointClouds:
        """Return one cloud of the surface with its places elsewhere, through which gradients flow.

        Args:
            places: The ``p x d`` places.
            marks: Number of columns of normals: 0, ``d``, or that of normals without orientation.
            atoms: Number of points on the surface, or None; see ``PointClouds.from_meshes``. Those on
                triangles have gradients of their weights by the areas of these triangles, which more
                points would have.
        """
        points = places[self.index]
        normals: Normals = "unoriented" if marks > places.shape[1] else marks > 0
        options: Any = {"atoms": atoms, "normals": normals, "labels": None}
        if self.faces is None:
            read, count = read_curves([points], closed=True, **options)
        else:
            read, count = read_meshes([(points, self.faces)], seed=0, weighed=True, **options)
        return PointClouds._read(*read, geometric=True, num_normals=count)
