"""Principal components of corresponding shapes: outlines, and meshes with the same faces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures._meshes import mesh_arrays
from gp_distributions.measures.arrays import integer, point_array
from gp_distributions.measures.point_clouds import PointClouds

# A segment or triangle whose share of the mean size is below this has no normal.
_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class PrincipalShapes:
    r"""Shapes around the mean of examples, along their principal components.

    With the mean :math:`\bar v` of the vertices of the examples, their principal components :math:`c_k`
    and the standard deviations :math:`s_k` of the scores, the scores :math:`z` are those of the shape

    .. math:: v(z) = \bar v + \sum_k z_k s_k c_k.

    Attributes:
        mean: The mean vertices, ``V x d``.
        components: The components :math:`s_k c_k`, ``k x V x d``.
        faces: The numbers of the vertices of each segment of an outline or triangle of a mesh,
            ``F x d``.
    """

    mean: Tensor
    components: Tensor
    faces: Tensor

    @classmethod
    def of(cls, examples: Iterable[Any], num_components: int, num_points: int) -> PrincipalShapes:
        """Compute the components of examples, as :meth:`Decoder.from_examples` describes them."""
        vertices, faces = _corresponding(examples, num_points)
        count = integer(num_components, "num_components", least=1)
        if count >= len(vertices):
            raise ValueError(
                f"Expected more than num_components={count} examples, got {len(vertices)}."
            )
        mean = vertices.mean(0)
        _, values, components = torch.linalg.svd((vertices - mean).flatten(1), full_matrices=False)
        scales = values[:count] / (len(vertices) - 1) ** 0.5
        if not bool(scales[-1] > torch.finfo(scales.dtype).eps * scales[0]):
            raise ValueError(f"Expected examples that vary in {count} directions, got fewer.")
        scaled = scales[:, None] * components[:count]
        return cls(mean, scaled.unflatten(-1, mean.shape), faces)

    @property
    def num_components(self) -> int:
        """The number ``k`` of components."""
        return len(self.components)

    def vertices(self, scores: Tensor) -> Tensor:
        """Return the vertices of ``N x k`` scores, ``N x V x d``."""
        mean, components = self.mean.to(scores), self.components.to(scores)
        return mean + torch.einsum("nk,kvd->nvd", scores, components)

    def __call__(self, scores: Tensor) -> PointClouds:
        """Return clouds with an atom for each segment or triangle of ``N x k`` scores.

        Atoms are the middles and outward unit normals, weighted by length or area.
        """
        corners = self._corners(self.vertices(scores))
        normals, sizes = self._normals(corners)
        points = torch.cat([corners.mean(-2), normals], dim=-1)
        return PointClouds(points, sizes, num_normals=self.mean.shape[-1])

    def scores(self, examples: Iterable[Any]) -> Tensor:
        """Return the scores of shapes, ``N x k``.

        Raises:
            ValueError: If they do not correspond to the examples.
        """
        outline = self.mean.shape[-1] == 2
        vertices, faces = _corresponding(examples, len(self.mean) if outline else 3)
        if not torch.equal(faces, self.faces):
            raise ValueError("Expected shapes with the faces of the examples, got others.")
        squares = self.components.square().sum((-2, -1))
        return torch.einsum("nvd,kvd->nk", vertices - self.mean, self.components) / squares

    def folds(self, scores: Tensor) -> Tensor:
        """Return which shapes fold: segments that cross, or triangles that turned over."""
        corners = self._corners(self.vertices(scores))
        if corners.shape[-1] == 3:
            usual = self._normals(self._corners(self.mean.to(scores).unsqueeze(0)))[0]
            return ((self._normals(corners)[0] * usual).sum(-1) < 0).any(-1)
        first, second = corners.unbind(-2)
        # Whether the ends of each segment lie on different sides of each other segment.
        a, b = (_sides(first, second, ends) for ends in (first, second))
        apart = a * b < 0
        return (apart & apart.mT).any(-1).any(-1)

    def _corners(self, vertices: Tensor) -> Tensor:
        """Return the corners of all segments or triangles, ``N x F x d x d``."""
        return vertices[:, self.faces.to(vertices.device)]

    def _normals(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Return outward unit normals, ``N x F x d``, and lengths or areas, ``N x F``."""
        volume = _volume(self._corners(self.mean.unsqueeze(0)))
        vectors = _vectors(corners) * volume.sign().to(corners)
        sizes = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        some = sizes > _NOTHING * sizes.mean(-2, keepdim=True)
        unit = torch.eye(corners.shape[-1]).to(corners)[0]
        return torch.where(some, vectors / torch.where(some, sizes, 1.0), unit), sizes.squeeze(-1)


def _vectors(corners: Tensor) -> Tensor:
    """Return normals, whose lengths are those of segments or the areas of triangles."""
    if corners.shape[-1] == 2:
        x, y = (corners[..., 1, :] - corners[..., 0, :]).unbind(-1)
        return torch.stack([y, -x], dim=-1)
    first, *others = corners.unbind(-2)
    return torch.linalg.cross(others[0] - first, others[1] - first) / 2


def _volume(corners: Tensor) -> Tensor:
    """Return the signed area or volume within closed shapes, times their dimension."""
    return (corners.mean(-2) * _vectors(corners)).sum()


def _sides(first: Tensor, second: Tensor, points: Tensor) -> Tensor:
    """Return on which side of each segment (rows) points (columns) lie, ``N x F x F``."""
    along = (second - first).unsqueeze(-2)
    across = points.unsqueeze(-3) - first.unsqueeze(-2)
    return along[..., 0] * across[..., 1] - along[..., 1] * across[..., 0]


def _corresponding(examples: Iterable[Any], num_points: int) -> tuple[Tensor, Tensor]:
    """Return corresponding vertices of examples, ``N x V x d``, and their faces, ``F x d``."""
    if isinstance(examples, PointClouds):
        raise TypeError(
            "Expected examples whose points correspond, outlines or meshes with the same faces, got "
            "PointClouds, whose atoms have no order."
        )
    given = list(examples)
    if not given:
        raise ValueError("Expected examples, got none.")
    if all(isinstance(each, np.ndarray | Tensor) for each in given):
        for place, each in enumerate(given):
            if point_array(each, f"Example {place}", "(n, 2)").shape[-1] != 2:
                raise ValueError(
                    f"Example {place}: expected an outline in the plane, got {each.shape[-1]} "
                    "coordinates. Pass meshes as pairs (vertices, faces)."
                )
        points = PointClouds.from_curves(given, atoms=num_points).points
        first = torch.arange(num_points)
        return points, torch.stack([first, first.roll(-1)], dim=-1)
    meshes = [mesh_arrays(each, f"Example {place}") for place, each in enumerate(given)]
    vertices, faces = ([np.asarray(part) for part in parts] for parts in zip(*meshes, strict=True))
    for place in range(1, len(given)):
        if vertices[place].shape != vertices[0].shape or not np.array_equal(faces[place], faces[0]):
            raise ValueError(
                f"Example {place}: expected a mesh with the vertices and faces of example 0, got "
                f"{len(vertices[place])} vertices and {len(faces[place])} faces rather than "
                f"{len(vertices[0])} and {len(faces[0])}, or other faces. Wrap one mesh around all "
                "parts, or pass outlines."
            )
    points = torch.tensor(np.stack(vertices), dtype=torch.float64)
    return points, torch.from_numpy(faces[0].astype(np.int64))
