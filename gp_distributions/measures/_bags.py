"""Read clouds from arrays, from rows, and from lists of bags of unequal sizes, which are padded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._validation import Wording, equal_weights, validated
from gp_distributions.measures.arrays import (
    Array,
    Data,
    concatenate,
    dtype_and_device,
    object_array,
    point_array,
    real_array,
    shown,
    to_tensors,
)
from gp_distributions.measures.tables import cells, is_table, table
from gp_distributions.rows.padding import untouched_zeros


def listed(
    items: Any, noun: str, labels: Iterable[Any] | None = None
) -> tuple[list[Any], npt.NDArray[Any] | None]:
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
        labels, items = [*map(_plain, items)], items.values()
    column = cells(items)
    if column is None:
        try:
            # Kernels have an entry for every index, so that a list of them would never end.
            if isinstance(items, str | torch.nn.Module) or _is_long(items):
                raise TypeError("These are no lists.")
            column = list(map(_plain, items))
        except TypeError as error:
            raise TypeError(
                f"Expected a list or dictionary with an entry for each {noun}, got "
                f"{type(items).__name__}. Pass a single {noun} in a list, [{noun}], files of a folder "
                "as sorted(Path(folder).glob('*.stl')), and a column of a frame as frame[name]. Read "
                "a long table with PointClouds.from_frame(frame, bag=..., columns=[...])."
            ) from error
    if labels is None:
        return column, None
    names = object_array(cells(labels) or list(labels))
    if len(names) != len(column):
        raise ValueError(f"Expected a label for each {noun}, {len(column)}, got {len(names)}.")
    return column, names


def matched(weights: Any, labels: npt.NDArray[Any] | None) -> Any:
    """Return a dictionary of weights as a list in the order of the labels, and other weights unchanged.

    Raises:
        ValueError: If a dictionary of weights does not have the labels as its keys.
    """
    if not isinstance(weights, Mapping):
        return weights
    keys = [] if labels is None else labels.tolist()
    if set(keys) != set(weights):
        raise ValueError(
            f"Expected weights with the keys of the bags, {keys[:5]}, got weights with keys "
            f"{list(weights)[:5]}."
        )
    return [weights[key] for key in keys]


def read_arrays(points: Data, weights: Data | None) -> tuple[Tensor, Tensor]:
    """Read clouds from an array of atoms and an array of weights.

    Args:
        points: A ``batch_shape x n x d`` array.
        weights: A ``batch_shape x n`` array; None for equal weights.

    Returns:
        A ``batch_shape x n x d`` tensor of points and a ``batch_shape x n`` tensor of normalised
        weights.
    """
    arrays = [point_array(points, "Points", "(..., n, d)")]
    if weights is not None:
        arrays.append(_weights(weights, arrays[0], "Weights"))
    atoms, *given = to_tensors(arrays)
    return validated(atoms, given[0] if given else equal_weights(atoms), Wording())


def read_bags(
    bags: Sequence[Data], weights: Iterable[Data] | None, labels: npt.NDArray[Any] | None
) -> tuple[Tensor, Tensor]:
    """Pad bags to the size of the largest, with atoms of weight zero at the origin.

    Args:
        bags: For each bag, an ``n_i x d`` array; or, if ``d = 1``, ``n_i`` numbers for every bag.
        weights: For each bag, ``n_i`` weights; None for equal weights.
        labels: Labels of the bags in error messages.

    Returns:
        A ``B x n x d`` tensor of points and a ``B x n`` tensor of normalised weights.
    """
    wording = Wording(labels=labels)
    _check_columns(bags, wording)
    arrays = [real_array(bag, wording((i,))) for i, bag in enumerate(bags)]
    if all(array.ndim == 1 for array in arrays):
        arrays = [array[:, None] for array in arrays]
    arrays = point_arrays(arrays, wording)
    masses = None if weights is None else list(weights)
    if masses is not None and len(masses) != len(arrays):
        raise ValueError(
            f"Expected one array of weights for each of {len(arrays)} bags, got {len(masses)}."
        )
    given = [
        _weights(array, bag, f"Weights of bag {i}")
        for i, (array, bag) in enumerate(zip(masses or [], arrays, strict=False))
    ]
    dtype, device = dtype_and_device(arrays + given)
    points, sizes = pad_arrays(arrays, dtype, device)
    flat = concatenate(given, dtype, device) if given else points.new_ones(int(sizes.sum()))
    return validated(points, pad(flat, sizes), wording)


def read_ragged(
    points: Data, offsets: Data, weights: Data | None, labels: npt.NDArray[Any] | None
) -> tuple[Tensor, Tensor]:
    """Pad bags whose atoms are stored one bag after another.

    Args:
        points: An ``N x d`` array of the atoms of all bags.
        offsets: The ``B + 1`` rows of ``points`` at which bags begin, and ``N``.
        weights: The ``N`` weights; None for equal weights.
        labels: Labels of the bags in error messages.

    Returns:
        Tensors like those of :func:`read_bags`.
    """
    arrays = [point_array(points, "Points", "(n, d)")]
    if weights is not None:
        arrays.append(_weights(weights, arrays[0], "Weights"))
    sizes = _sizes(offsets, len(arrays[0]))
    if labels is not None and len(labels) != len(sizes):
        raise ValueError(f"Expected a label for each of {len(sizes)} bags, got {len(labels)}.")
    atoms, *given = to_tensors(arrays)
    sizes = sizes.to(atoms.device)
    masses = given[0] if given else atoms.new_ones(len(atoms))
    return validated(pad(atoms, sizes), pad(masses, sizes), Wording(labels=labels))


def _sizes(offsets: Data, atoms: int) -> Tensor:
    """Return the sizes of bags that begin at the given offsets."""
    array = torch.as_tensor(real_array(offsets, "Offsets")).cpu()
    listed = array.dim() == 1 and len(array) > 1 and not array.is_floating_point()
    if not listed or int(array[0]) != 0 or int(array[-1]) != atoms:
        raise ValueError(
            "Offsets: expected two or more integers, 0 as the first and the number of atoms, "
            f"{atoms}, as the last, got {shown(array.tolist())}."
        )
    sizes = array.to(torch.int64).diff()
    if not bool((sizes > 0).all()):
        empty = int((sizes <= 0).nonzero()[0])
        raise ValueError(
            f"Offsets: expected increasing offsets, got {int(array[empty])} and then "
            f"{int(array[empty + 1])} for bag {empty}; a bag holds at least one atom."
        )
    return sizes


def _weights(weights: Data, points: Array, name: str) -> Array:
    """Return an array of weights, one for each atom."""
    array = real_array(weights, name)
    if array.shape != points.shape[:-1]:
        raise ValueError(
            f"{name}: expected shape {tuple(points.shape[:-1])}, one for each atom, got "
            f"{tuple(array.shape)}."
        )
    return array


def _check_columns(bags: Sequence[Any], wording: Wording) -> None:
    """Check that bags that are data frames have the same columns in the same order."""
    found = {i: table(bag).columns for i, bag in enumerate(bags) if hasattr(bag, "columns")}
    for i, names in found.items():
        first = next(iter(found.values()))
        if names != first:
            raise ValueError(
                f"{wording((i,))}: expected the columns {first}, as in other bags, got {names}. Select "
                "the columns of each bag, bag[columns]."
            )


def _is_long(items: Any) -> bool:
    """Return whether items are a table, or one in groups."""
    return is_table(items) or hasattr(items, "get_group")


def _plain(value: Any) -> Any:
    """Return scalars of PyArrow, such as the bags in a column of lists, as Python values."""
    return value.as_py() if callable(getattr(type(value), "as_py", None)) else value


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
            turned = len(arrays) > 2 and len({len(other) for other in arrays}) == 1
            advice = " An array has a row for each atom: transpose it if it has a column for each."
            raise ValueError(
                f"{wording((i,))}: expected {arrays[0].shape[1]} columns as in {noun} 0, got "
                f"{array.shape[1]}.{advice * turned}"
            )
    return arrays


def pad_arrays(
    arrays: list[Array], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Pad ``B`` arrays of shape ``n_i x ...`` to a ``B x n x ...`` tensor; also return the sizes."""
    sizes = torch.tensor([len(array) for array in arrays], device=device)
    return pad(concatenate(arrays, dtype, device), sizes), sizes


def pad(flat: Tensor, sizes: Tensor) -> Tensor:
    """Pad concatenated bags with zeros to the size of the largest.

    Args:
        flat: A ``sum(sizes) x ...`` tensor of the entries of all bags, one bag after another.
        sizes: A tensor of the ``B`` sizes of the bags, on the device of ``flat``.

    Returns:
        A ``B x max(sizes) x ...`` tensor.
    """
    mask = occupied(sizes, int(sizes.max()))
    padded = untouched_zeros((*mask.shape, *flat.shape[1:]), flat)
    return padded.masked_scatter_(mask.reshape(*mask.shape, *[1] * (flat.dim() - 1)), flat)


def occupied(sizes: Tensor, width: int) -> Tensor:
    """Return a ``B x width`` mask of the entries that are not padding."""
    return torch.arange(width, device=sizes.device) < sizes.unsqueeze(-1)
