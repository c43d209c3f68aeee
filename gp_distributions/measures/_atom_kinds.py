"""Kinds of atoms, such as elements or sexes, as numbers in a column of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures._bags import by_label
from gp_distributions.measures._validation import Clouds, Name
from gp_distributions.measures.arrays import Labels, is_missing

# The distinct kinds, in sorted order. An atom has the number of its kind among them.
KindNames: TypeAlias = tuple[Any, ...]


def with_kinds(clouds: Clouds, kinds: Any, name: Name) -> tuple[Clouds, KindNames]:
    """Write the numbers of the kinds of atoms behind their coordinates.

    Args:
        clouds: Points, weights and masses of clouds.
        kinds: A ``batch_shape x n`` array of kinds, or None for none.
        name: Names of the clouds in error messages.

    Returns:
        The clouds with a column more, and the kinds.

    Raises:
        ValueError: If there is not one kind for each atom, or one is missing.
    """
    if kinds is None:
        return clouds, ()
    points, weights, mass = clouds
    array = np.asarray(kinds.numpy(force=True) if isinstance(kinds, Tensor) else kinds)
    if array.shape != weights.shape:
        raise ValueError(
            f"Kinds: expected shape {tuple(weights.shape)}, one for each atom, got {array.shape}."
        )
    present = weights > 0
    found = array[present.numpy(force=True)].tolist()
    if any(map(is_missing, set(found))):
        place = next(i for i, kind in enumerate(found) if is_missing(kind))
        *cloud, atom = present.nonzero()[place].tolist()
        raise ValueError(
            f"{name(tuple(cloud))}: expected a kind for each atom, got {found[place]!r} in atom {atom}."
        )
    names = union([tuple(found)])
    numbers = {kind: place for place, kind in enumerate(names)}
    marks = torch.zeros_like(weights)
    marks[present] = marks.new_tensor([numbers[kind] for kind in found])
    marks = marks.unsqueeze(-1).expand(*points.shape[:-1], 1)
    return (torch.cat([points, marks], dim=-1), weights, mass), names


def with_listed_kinds(
    clouds: Clouds,
    kinds: Any,
    labels: Labels | None,
    name: Name,
    sizes: Sequence[int] | None = None,
) -> tuple[Clouds, KindNames]:
    """As :func:`with_kinds`, of kinds in a list of arrays, or in a dictionary by label.

    Raises:
        ValueError: As for :func:`with_kinds`, where ``sizes`` are the numbers of atoms in bags.
    """
    if kinds is None:
        return clouds, ()
    shape = tuple(clouds[1].shape)
    items = [np.asarray(each, dtype=object) for each in by_label(kinds, labels, "kinds")]
    if len(items) != shape[0]:
        raise ValueError(f"Expected kinds of each of {shape[0]} bags, got {len(items)}.")
    for i, (item, size) in enumerate(zip(items, sizes or map(len, items), strict=True)):
        if len(item) != size:
            raise ValueError(
                f"{name((i,))}: expected a kind for each of {size} atoms, got {len(item)}."
            )
    padded = np.full(shape, items[0][0], dtype=object)
    for row, item in zip(padded, items, strict=True):
        row[: len(item)] = item
    return with_kinds(clouds, padded, name)


def renumbered(
    points: Tensor, weights: Tensor, old: KindNames, new: KindNames, name: Name
) -> Tensor:
    """Number the kinds in the last column of points by their places among other names.

    Raises:
        ValueError: If an atom has a kind that is not among them; the message names it.
    """
    if old == new:
        return points
    places = [new.index(kind) if kind in new else -1 for kind in old]
    numbers = torch.tensor(places, dtype=points.dtype, device=points.device)[points[..., -1].long()]
    unknown = ((numbers < 0) & (weights > 0)).nonzero()
    if len(unknown):
        *cloud, atom = unknown[0].tolist()
        kind = old[int(points[(*cloud, atom, -1)])]
        raise ValueError(
            f"{name(tuple(cloud))}: expected atoms of the kinds {list(new)}, got {kind!r} in atom "
            f"{atom}."
        )
    return torch.cat([points[..., :-1], numbers.clamp_min(0).unsqueeze(-1)], dim=-1)


def union(names: Sequence[KindNames]) -> KindNames:
    """Return all kinds in sorted order, numbers before text."""
    kinds = {kind for each in names for kind in each}
    return tuple(sorted(kinds, key=lambda kind: (isinstance(kind, str), kind)))
