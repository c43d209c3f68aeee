"""Read clouds from arrays, images and bags of unequal sizes, and number the kinds of atoms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures.arrays import (
    Array,
    Clouds,
    Data,
    Labels,
    Name,
    Wording,
    is_missing,
    point_array,
    real_array,
    to_tensors,
    validated,
)
from gp_distributions.rows.tensors import untouched_zeros


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
    return padded(flat, filled, sizes, wording)


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
    points: Data, offsets: Data, weights: Data | None, kinds: Any, labels: Labels | None
) -> tuple[Clouds, KindNames]:
    """Pad bags whose atoms are stored one bag after another.

    Args:
        points: An ``N x d`` array of the atoms of all bags.
        offsets: The ``B + 1`` rows of ``points`` at which bags begin, and ``N``.
        weights: The ``N`` weights; None for equal weights.
        kinds: The ``N`` kinds; None for none.
        labels: Labels of the bags.

    Returns:
        Tensors like those of :func:`read_bags`, and the names of the kinds.
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
    wording = Wording(labels=labels)
    if kinds is not None:
        kinds = np.split(np.asarray(kinds), whole[1:-1].numpy(force=True))
    return with_listed_kinds(padded(atoms, masses, sizes, wording), kinds, wording, sizes.tolist())


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


def padded(atoms: Tensor, weights: Tensor, sizes: Tensor, wording: Wording) -> Clouds:
    """Pad concatenated atoms and weights by :func:`pad`, and validate them."""
    return validated(pad(atoms, sizes), pad(weights, sizes), wording)


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
    zeros = untouched_zeros((*mask.shape, *flat.shape[1:]), flat)
    return zeros.masked_scatter_(mask.reshape(*mask.shape, *[1] * (flat.dim() - 1)), flat)


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
    clouds: Clouds, kinds: Any, wording: Wording, sizes: Sequence[int]
) -> tuple[Clouds, KindNames]:
    """As :func:`with_kinds`, of kinds in a list of arrays, or in a dictionary by label.

    Raises:
        ValueError: As for :func:`with_kinds`, where ``sizes`` are the numbers of atoms in bags.
    """
    if kinds is None:
        return clouds, ()
    shape = tuple(clouds[1].shape)
    items = [np.asarray(each, dtype=object) for each in by_label(kinds, wording.labels, "kinds")]
    if len(items) != shape[0]:
        raise ValueError(f"Expected kinds of each of {shape[0]} bags, got {len(items)}.")
    for i, (item, size) in enumerate(zip(items, sizes, strict=True)):
        if len(item) != size:
            raise ValueError(
                f"{wording((i,))}: expected a kind for each of {size} atoms, got {len(item)}."
            )
    array = np.full(shape, items[0][0], dtype=object)
    for row, item in zip(array, items, strict=True):
        row[: len(item)] = item
    return with_kinds(clouds, array, wording)


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
            f"{name(tuple(cloud))}: expected atoms of the kinds {list(new)}, as in the training data, "
            f"got {kind!r} in atom {atom}. Leave such atoms out, or train on clouds that have all kinds."
        )
    return torch.cat([points[..., :-1], numbers.clamp_min(0).unsqueeze(-1)], dim=-1)


def union(names: Sequence[KindNames]) -> KindNames:
    """Return all kinds in sorted order, numbers before text."""
    kinds = {kind for each in names for kind in each}
    return tuple(sorted(kinds, key=lambda kind: (isinstance(kind, str), kind)))
