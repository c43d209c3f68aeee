"""Unit normals of curves and surfaces: of their segments, faces and vertices, and of bare points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor

from gp_distributions.measures._bags import pad_arrays
from gp_distributions.measures._geometries import Lines
from gp_distributions.measures._validation import Clouds, Name, Wording, check_entries
from gp_distributions.measures.arrays import Array, Data, real_array, to_tensors
from gp_distributions.numerics.linear_algebra import upper_triangle

# Whether to compute normals, how, or the normals of each shape.
Normals: TypeAlias = bool | Literal["unoriented"] | Sequence[Data]


def are_computed(normals: Normals) -> bool:
    """Return whether normals are to be computed.

    Raises:
        ValueError: If ``normals`` is another word than ``"unoriented"``.
    """
    if isinstance(normals, str) and normals != "unoriented":
        raise ValueError(
            f'Expected normals as True, False, "unoriented" or a list, got {normals!r}.'
        )
    return normals is True or isinstance(normals, str)


def with_given(
    arrays: list[Array], normals: Normals, atoms: int | None, wording: Wording
) -> tuple[list[Tensor], list[Tensor]]:
    """Convert the vertices of shapes and the normals that a user gives, if any, to tensors.

    Args:
        arrays: For each shape, an ``n_i x d`` array of vertices.
        normals: The normals, or how to compute them, for which the list of normals is empty.
        atoms: Number of atoms that replace the vertices; None for the vertices.
        wording: Names of the shapes in error messages.

    Raises:
        ValueError: If normals are given along with a number of atoms, or there is not one for each
            vertex.
    """
    if are_computed(normals) or isinstance(normals, bool | str):
        return to_tensors(arrays), []
    if atoms is not None:
        raise ValueError("Expected normals=True along with atoms=, got normals of the vertices.")
    given = [real_array(each, f"Normals of {wording((i,))}") for i, each in enumerate(normals)]
    if len(given) != len(arrays):
        raise ValueError(
            f"Expected normals of each of {len(arrays)} {wording.noun.lower()}s, got {len(given)}."
        )
    for i, (array, each) in enumerate(zip(arrays, given, strict=True)):
        if array.shape != each.shape:
            raise ValueError(
                f"{wording((i,))}: expected normals of shape {tuple(array.shape)}, one for each vertex, "
                f"got {tuple(each.shape)}."
            )
    tensors = to_tensors([*arrays, *given])
    return tensors[: len(arrays)], tensors[len(arrays) :]


def marked(found: Clouds, marks: Sequence[Tensor], wording: Wording) -> tuple[Clouds, int]:
    """Write the normals of all atoms behind their positions.

    Args:
        found: A ``B x n x d`` tensor of positions, a ``B x n`` tensor of weights, and masses.
        marks: For each shape, an ``n_i x k`` tensor of normals, or none for no normals.
        wording: Names of the shapes in error messages.

    Returns:
        The clouds with a ``B x n x (d + k)`` tensor of points, and ``k``.

    Raises:
        ValueError: If a normal is not of length one.
    """
    if not marks:
        return found, 0
    normals = pad_arrays(marks)
    points, weights, mass = torch.cat([found[0], normals], dim=-1), *found[1:]
    check_normals(points, weights, normals.shape[-1], wording)
    return (points, weights, mass), normals.shape[-1]


def curve_normals(points: Tensor, lines: Lines, name: str, *, oriented: bool) -> Tensor:
    """Compute the normals of the segments of a curve, times their lengths.

    Args:
        points: An ``n x 2`` tensor of vertices.
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
    segments = points[torch.from_numpy(lines.following).to(points.device)] - points
    vectors = torch.stack([segments[:, 1], -segments[:, 0]], dim=-1)
    if not oriented:
        return _products(vectors)
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
    if (areas.abs() <= _rounding(areas) * lengths.square()).any():
        raise ValueError(
            f"{name}: expected an outline with an inside, got a signed area of 0. Pass "
            'normals="unoriented".'
        )
    signs = areas.sign() * torch.from_numpy(1.0 - 2.0 * lines.hole).to(areas)
    return vectors * signs[line].unsqueeze(-1)


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
        return _products(vectors)
    return -vectors if _inside_out(points.detach(), vectors.detach(), faces, name) else vectors


def _inside_out(points: Tensor, vectors: Tensor, faces: Tensor, name: str) -> bool:
    """Return whether a mesh is closed and its triangles are clockwise seen from outside.

    Vertices at one place are one vertex, since some files repeat them for each triangle.
    """
    vertices, place = points.unique(dim=0, return_inverse=True)
    index = place[faces].numpy(force=True)
    kept = (index != np.roll(index, 1, axis=1)).all(-1)
    first, last = index[kept].ravel(), np.roll(index[kept], -1, axis=1).ravel()
    both = [first * len(vertices) + last, last * len(vertices) + first]
    edges = np.unique(np.concatenate(both), return_inverse=True)[1]
    forward, backward = (np.bincount(e, minlength=edges.max() + 1) for e in np.split(edges, 2))
    unequal = forward != backward
    twice = (unequal & (forward > 1)).nonzero()[0]
    if len(twice):
        given = faces.numpy(force=True)[kept]
        sides = np.stack([given, np.roll(given, -1, axis=1)], axis=-1).reshape(-1, 2)
        edge = tuple(sides[(edges[: len(first)] == twice[0]).argmax()].tolist())
        raise ValueError(
            f"{name}: expected triangles that traverse an edge between them in opposite directions, got "
            f"the edge {edge} {forward[twice[0]]} times in one. Pass "
            'normals="unoriented", or repair the mesh, for example with trimesh.repair.fix_normals.'
        )
    if unequal.any():
        return False
    corners = points[faces]
    middle = corners.mean(1) - corners.mean((0, 1))
    volume = (middle * vectors).sum() / 3
    bound = torch.linalg.vector_norm(vectors, dim=-1).sum() ** 1.5
    if not volume.abs() > _rounding(bound) * bound:
        raise ValueError(
            f"{name}: expected a closed mesh with an inside, got a volume of 0. Pass "
            'normals="unoriented".'
        )
    return bool(volume < 0)


def normalised(normals: Tensor, dim: int) -> Tensor:
    """Divide normals by their lengths, or products of normals by their traces, unless they are zero."""
    size = sizes(normals, dim).unsqueeze(-1)
    return normals / torch.where(size > 0, size, 1.0)


def sizes(normals: Tensor, dim: int) -> Tensor:
    """Return the lengths of ``... x d`` normals, or the traces of ``... x d (d + 1) / 2`` products."""
    if normals.shape[-1] == dim:
        return torch.linalg.vector_norm(normals, dim=-1)
    return normals[..., :dim].sum(-1)


def check_normals(points: Tensor, weights: Tensor, count: int, name: Name) -> None:
    """Check that the last columns of atoms of positive weight are unit normals, or products of them.

    Args:
        points: A ``batch_shape x n x (d + count)`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        count: Number of columns of normals.
        name: Names of the clouds in error messages.

    Raises:
        ValueError: If there are other numbers of columns, or a normal is not of length one.
    """
    dim = points.shape[-1] - count
    if count not in (0, dim, dim * (dim + 1) // 2):
        raise ValueError(
            f"Expected d columns of normals, or d (d + 1) / 2 of products of them, after d columns of "
            f"positions, got num_normals={count} of {points.shape[-1]} columns."
        )
    if count:
        found = sizes(points[..., dim:].detach(), dim)
        valid = ((found - 1).abs() <= 1e-6) | (weights <= 0)
        check_entries(valid, found, name, "normals of length 1", " in atom {}")


def estimated(points: Tensor, weights: Tensor, neighbors: int, name: Name) -> Tensor:
    """Estimate normals of points without orientation, from the nearest atoms of each.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms on curves or surfaces.
        weights: A ``batch_shape x n`` tensor of weights; atoms of weight zero are padding.
        neighbors: Number of nearest atoms, which are all others of a small cloud.
        name: Names of the clouds in error messages.

    Returns:
        A ``batch_shape x n x d (d + 1) / 2`` tensor of products of normals, without gradients.

    Raises:
        ValueError: If a cloud has fewer than ``d + 1`` atoms.
    """
    dim = points.shape[-1]
    present = (weights > 0).numpy(force=True)
    atoms = points.numpy(force=True)
    counts = torch.from_numpy(present.sum(-1))
    enough = counts > dim
    check_entries(enough, counts, name, f"at least {dim + 1} atoms to estimate normals", "")
    found = np.zeros((*present.shape, dim, dim), dtype=atoms.dtype)
    for index in np.ndindex(*present.shape[:-1]):
        own = atoms[index][present[index]]
        nearest = min(neighbors, len(own) - 1) + 1  # with the atom itself
        around = own[scipy.spatial.cKDTree(own).query(own, nearest)[1]]
        around = around - around.mean(1, keepdims=True)
        normal = np.linalg.eigh(around.swapaxes(1, 2) @ around)[1][..., 0]
        found[index][present[index]] = normal[:, :, None] * normal[:, None, :]
    return upper_triangle(torch.from_numpy(found).to(points.device))


def _products(vectors: Tensor) -> Tensor:
    """Return the entries of ``n n^T`` of unit normals, times the lengths of the vectors along them."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1)[:, None, None]
    products = vectors.unsqueeze(-1) * vectors.unsqueeze(-2)
    return upper_triangle(products / torch.where(lengths > 0, lengths, 1.0))


def _rounding(values: Tensor) -> float:
    """Return how small sums are, relative to their terms, if they differ from zero by rounding."""
    return 1000 * torch.finfo(values.dtype).eps
