"""Read clouds from arrays, from rows, and from lists of bags of unequal sizes, which are padded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures._validation import Clouds, Wording, validated
from gp_distributions.measures.arrays import (
    Array,
    Data,
    Labels,
    object_array,
    point_array,
    real_array,
    to_tensors,
)
from gp_distributions.measures.tables import cells, is_table
from gp_distributions.rows.tensors import untouched_zeros


def listed(
    items: Any, noun: str, labels: Iterable[Any] | None = None
) -> tuple[list[Any], Labels | None]:
    """Return items as a list, and their labels.

    Args:
        items: An iterable of items, such as a column of a data frame, or a dictionary.
        noun: What an item is called in error messages.
        labels: Labels of the items. Default: the keys of a dictionary.

    Raises:
        TypeError: If the items cannot be iterated over, are a table, or are the path of one file.
        ValueError: If there is not one label for each item.
    """
    if isinstance(items, Mapping):
        labels, items = items.keys(), items.values()
    listable = isinstance(items, Iterable) or hasattr(items, "__len__")
    if isinstance(items, str) or is_table(items) or not listable:
        raise TypeError(
            f"Expected a list or dictionary with an entry for each {noun}, got "
            f"{type(items).__name__}. Pass a single {noun} in a list, [{noun}], files of a folder as "
            "sorted(Path(folder).glob('*.stl')), and a column of a frame as frame[name]. Read a long "
            "table with PointClouds.from_frame(frame, bag=..., columns=[...])."
        )
    column = cells(items)
    column = list(items) if column is None else column
    if labels is None:
        return column, None
    names = object_array(cells(labels) or list(labels))
    if len(names) != len(column):
        raise ValueError(f"Expected a label for each {noun}, {len(column)}, got {len(names)}.")
    return column, names


def read_arrays(points: Data, weights: Data | None) -> Clouds:
    """Read clouds from an array of atoms and an array of weights.

    Args:
        points: A ``batch_shape x n x d`` array.
        weights: A ``batch_shape x n`` array; None for equal weights.

    Returns:
        A ``batch_shape x n x d`` tensor of points, a ``batch_shape x n`` tensor of normalised weights,
        and their ``batch_shape`` sums before.
    """
    atoms = point_array(points, "Points", "(..., n, d)")
    return validated(*_tensors(atoms, weights), Wording())


def read_bags(bags: Sequence[Data], weights: Any, labels: Labels | None) -> Clouds:
    """Pad bags to the size of the largest, with atoms of weight zero at the origin.

    Args:
        bags: For each bag, an ``n_i x d`` array; or, if ``d = 1``, ``n_i`` numbers for every bag.
        weights: For each bag, ``n_i`` weights, in a list, or in a dictionary by label; None for equal
            weights.
        labels: Labels of the bags.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and their sums
        before.
    """
    wording = Wording(labels=labels)
    arrays = [real_array(bag, wording((i,))) for i, bag in enumerate(bags)]
    if all(array.ndim == 1 for array in arrays):
        arrays = [array[:, None] for array in arrays]
    arrays = point_arrays(arrays, wording)
    masses = [] if weights is None else by_label(weights, labels, "weights")
    if weights is not None and len(masses) != len(arrays):
        raise ValueError(
            f"Expected one array of weights for each of {len(arrays)} bags, got {len(masses)}."
        )
    given = [_weights(mass, arrays[i], f"Weights of bag {i}") for i, mass in enumerate(masses)]
    tensors = to_tensors([*arrays, *given])
    flat = torch.cat(tensors[: len(arrays)])
    filled = torch.cat(tensors[len(arrays) :]) if given else flat.new_ones(len(flat))
    sizes = torch.tensor([len(array) for array in arrays], device=flat.device)
    return validated(pad(flat, sizes), pad(filled, sizes), wording)


def by_label(values: Any, labels: Labels | None, noun: str) -> list[Any]:
    """Return what belongs to each bag as a list, given a list or a dictionary by label.

    Raises:
        ValueError: If a dictionary has other keys than the bags.
    """
    if not isinstance(values, Mapping):
        return list(values)
    keys = [] if labels is None else labels.tolist()
    if set(keys) != set(values):
        raise ValueError(
            f"Expected {noun} with the keys of the bags, {keys[:5]}, got {noun} with keys "
            f"{list(values)[:5]}."
        )
    return [values[key] for key in keys]


def read_ragged(
    points: Data, offsets: Data, weights: Data | None, labels: Labels | None
) -> tuple[Clouds, list[int]]:
    """Pad bags whose atoms are stored one bag after another.

    Args:
        points: An ``N x d`` array of the atoms of all bags.
        offsets: The ``B + 1`` rows of ``points`` at which bags begin, and ``N``.
        weights: The ``N`` weights; None for equal weights.
        labels: Labels of the bags.

    Returns:
        Tensors like those of :func:`read_bags`, and the numbers of atoms.
    """
    array = point_array(points, "Points", "(n, d)")
    atoms, masses = _tensors(array, weights)
    ends = torch.as_tensor(real_array(offsets, "Offsets"), device=atoms.device)
    whole = ends.long()
    sizes = whole.diff()
    covers = ends.dim() == 1 and len(ends) > 1 and [*ends[[0, -1]]] == [0, len(atoms)]
    if not covers or (ends != whole).any() or not (sizes > 0).all():
        raise ValueError(
            f"Offsets: expected increasing integers from 0 to the number of atoms, {len(atoms)}, got "
            f"{np.array2string(ends.numpy(force=True), threshold=20)}; a bag holds at least one atom."
        )
    if labels is not None and len(labels) != len(sizes):
        raise ValueError(f"Expected a label for each of {len(sizes)} bags, got {len(labels)}.")
    padded = pad(atoms, sizes), pad(masses, sizes)
    return validated(*padded, Wording(labels=labels)), sizes.tolist()


def _tensors(points: Array, weights: Data | None) -> tuple[Tensor, Tensor]:
    """Convert atoms and their weights, which are equal by default, to tensors."""
    if weights is None:
        (atoms,) = to_tensors([points])
        return atoms, atoms.new_ones(atoms.shape[:-1])
    atoms, masses = to_tensors([points, _weights(weights, points, "Weights")])
    return atoms, masses


def _weights(weights: Data, points: Array, name: str) -> Array:
    """Return an array of weights, one for each atom."""
    array = real_array(weights, name)
    if array.shape != points.shape[:-1]:
        raise ValueError(
            f"{name}: expected shape {tuple(points.shape[:-1])}, one for each atom, got "
            f"{tuple(array.shape)}."
        )
    return array


def point_arrays(bags: Iterable[Data], wording: Wording) -> list[Array]:
    """Return the arrays of coordinates of all bags, not yet converted to tensors.

    Args:
        bags: For each bag, an ``n_i x d`` array.
        wording: What a bag is called in error messages.

    Raises:
        ValueError: If there are no bags, or a bag is empty or differs in its number of axes or
            columns.
    """
    noun = wording.noun.lower()
    arrays = [point_array(bag, wording((i,)), "(n, d)") for i, bag in enumerate(bags)]
    if not arrays:
        raise ValueError(f"Expected at least one {noun}, got an empty list.")
    for i, array in enumerate(arrays):
        if array.shape[1] != arrays[0].shape[1]:
            raise ValueError(
                f"{wording((i,))}: expected {arrays[0].shape[1]} columns as in {noun} 0, got "
                f"{array.shape[1]}. An array has a row for each atom: transpose it if it has a column."
            )
    return arrays


def pad_arrays(arrays: Sequence[Tensor]) -> Tensor:
    """Pad ``B`` tensors of shape ``n_i x ...`` to a ``B x n x ...`` tensor."""
    flat = torch.cat([*arrays])
    return pad(flat, torch.tensor([len(array) for array in arrays], device=flat.device))


def pad(flat: Tensor, sizes: Tensor) -> Tensor:
    """Pad concatenated bags with zeros to the size of the largest.

    Args:
        flat: A ``sum(sizes) x ...`` tensor of the entries of all bags, one bag after another.
        sizes: A tensor of the ``B`` sizes of the bags, on the device of ``flat``.

    Returns:
        A ``B x max(sizes) x ...`` tensor.
    """
    mask = torch.arange(int(sizes.max()), device=sizes.device) < sizes.unsqueeze(-1)
    padded = untouched_zeros((*mask.shape, *flat.shape[1:]), flat)
    return padded.masked_scatter_(mask.reshape(*mask.shape, *[1] * (flat.dim() - 1)), flat)
