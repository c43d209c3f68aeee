"""What curves and meshes share: geometries of other libraries, unit normals, and atoms."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy
import torch
from torch import Tensor

from gp_distributions.measures._bags import pad_arrays
from gp_distributions.measures.arrays import (
    Array,
    Clouds,
    Data,
    Name,
    Wording,
    check_entries,
    equal_weights,
    real_array,
    to_tensors,
    validated,
)
from gp_distributions.measures.tables import Columns
from gp_distributions.numerics.linear_algebra import upper_triangle
from gp_distributions.warnings import CostWarning, warn


def is_geometry(value: object) -> bool:
    """Return whether a value is GeoJSON, or has a ``__geo_interface__``, which describes it as such."""
    return hasattr(value, "__geo_interface__") or (isinstance(value, Mapping) and "type" in value)


def geometry_of(geometry: Any, name: str, kinds: Collection[str]) -> Any:
    """Return the type and the coordinates of a geometry that is not empty, of one of some kinds."""
    described = geometry if isinstance(geometry, Mapping) else geometry.__geo_interface__
    described = described.get("geometry") or described  # of a feature
    if described["type"] not in kinds or not described["coordinates"]:
        raise ValueError(
            f"{name}: expected a non-empty geometry of the types {', '.join(kinds)}, got "
            f"{described['type']}. Pass the parts of a collection, shapely.get_parts(collection)."
        )
    return described


# More vertices than this take long.
_MANY = 1_000_000

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
    if atoms is None and (count := sum(map(len, arrays))) > _MANY:
        warn(
            f"{count:,} vertices make as many atoms, or more with normals, whose reading and distances "
            "take long. Pass atoms=, a number for each shape.",
            CostWarning,
        )
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


class Shape(NamedTuple):
    """A curve or a mesh in tensors.

    Attributes:
        vertices: An ``n x d`` tensor.
        shares: The length or area that each vertex represents.
        middles: The middles of the ``p`` segments or triangles, ``p x d``.
        sizes: Their lengths or areas.
        normals: Their normals times their sizes, or None.
        placed: Points that replace the vertices, and the parts on which they lie, or None.
    """

    vertices: Tensor
    shares: Tensor
    middles: Tensor
    sizes: Tensor
    normals: Tensor | None
    placed: tuple[Tensor, Tensor] | None


def atoms_of(
    shapes: Sequence[Shape], given: Sequence[Tensor], columns: Columns, wording: Wording
) -> tuple[Clouds, dict[str, Any]]:
    """Return vertices, or placed points, or the middles of parts if their normals are computed.

    Unlike a vertex, a segment or triangle has one normal, also beside sharp edges.

    Args:
        shapes: The shapes.
        given: The normals of their vertices, or none.
        columns: The names of coordinates, or None.
        wording: Names of the shapes in error messages.

    Returns:
        Clouds, a ``B x n x d`` tensor of points, or of points and normals, a ``B x n`` tensor of
        normalised weights, and the total lengths or areas; and what else is known of them.

    Raises:
        ValueError: If a shape has no length or area, or a normal is not of length one.
    """
    vertices, shares, middles, sizes, normals, placed = zip(*shapes, strict=True)
    of_parts = normals[0] is not None and placed[0] is None
    atoms, masses = (middles, sizes) if of_parts else (vertices, shares)
    points, weights, mass = validated(pad_arrays(atoms), pad_arrays(masses), wording)
    dim = points.shape[-1]
    marks = given if normals[0] is None else [normalised(each, dim) for each in normals]
    if placed[0] is not None:
        points = torch.stack([each for each, _ in placed])
        weights = equal_weights(points)
        marks = [mark[on] for mark, (_, on) in zip(marks, placed, strict=False)]
    known = {"geometric": True, "columns": columns}
    if not marks:
        return (points, weights, mass), known
    padded = pad_arrays(marks)
    points = torch.cat([points, padded], dim=-1)
    check_normals(points, weights, padded.shape[-1], wording)
    return (points, weights, mass), known | {"num_normals": padded.shape[-1]}


def normalised(normals: Tensor, dim: int) -> Tensor:
    """Divide normals by their lengths, or products of normals by their traces, unless they are zero."""
    size = sizes(normals, dim).unsqueeze(-1)
    return normals / torch.where(size > 0, size, 1.0)


def products(vectors: Tensor) -> Tensor:
    """Return the entries of ``n n^T`` of unit normals, times the lengths of the vectors along them."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1)[:, None, None]
    products = vectors.unsqueeze(-1) * vectors.unsqueeze(-2)
    return upper_triangle(products / torch.where(lengths > 0, lengths, 1.0))


def rounding(values: Tensor) -> float:
    """Return how small sums are, relative to their terms, if they differ from zero by rounding."""
    return 1000 * torch.finfo(values.dtype).eps


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
