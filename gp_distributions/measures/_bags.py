"""Read clouds from arrays, from rows, and from bags of unequal sizes, which are padded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    integer,
    point_array,
    real_array,
    row_tensor,
    to_tensors,
)
from gp_distributions.measures.tables import column_names, is_table
from gp_distributions.rows.clouds import split_rows
from gp_distributions.rows.padding import untouched_zeros


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
        arrays.append(real_array(weights, "Weights"))
        if arrays[1].shape != arrays[0].shape[:-1]:
            raise ValueError(
                f"Weights: expected shape {tuple(arrays[0].shape[:-1])}, one for each atom, got "
                f"{tuple(arrays[1].shape)}."
            )
    atoms, *given = to_tensors(arrays)
    return validated(atoms, given[0] if given else equal_weights(atoms), Wording())


def read_rows(rows: Data, dim: int) -> tuple[Tensor, Tensor]:
    """Read clouds from ``batch_shape x m*(d+1)`` rows; return tensors like :func:`read_arrays`."""
    return validated(*split_rows(row_tensor(rows), integer(dim, "dim")), Wording())


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
    arrays = point_arrays(_columns_of_numbers(bags, wording), wording)
    given = [] if weights is None else _weight_arrays(weights, arrays)
    dtype, device = dtype_and_device(arrays + given)
    points, sizes = pad_arrays(arrays, dtype, device)
    if given:
        padded, _ = pad_arrays(given, dtype, device)
    else:
        padded = pad(points.new_ones(int(sizes.sum())), sizes)
    return validated(points, padded, wording)


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
        arrays.append(real_array(weights, "Weights"))
        if arrays[1].shape != arrays[0].shape[:1]:
            raise ValueError(
                f"Weights: expected {arrays[0].shape[0]} weights, one for each atom, got an array "
                f"of shape {tuple(arrays[1].shape)}."
            )
    sizes = _sizes(offsets, len(arrays[0]))
    if labels is not None and len(labels) != len(sizes):
        raise ValueError(f"Expected a label for each of {len(sizes)} bags, got {len(labels)}.")
    atoms, *given = to_tensors(arrays)
    sizes = sizes.to(atoms.device)
    padded = pad(atoms, sizes)
    masses = pad(given[0], sizes) if given else occupied(sizes, padded.shape[1]).to(atoms.dtype)
    return validated(padded, masses, Wording(labels=labels))


def _sizes(offsets: Data, atoms: int) -> Tensor:
    """Return the sizes of bags that begin at the given offsets."""
    array = torch.as_tensor(real_array(offsets, "Offsets"))
    if array.dim() != 1 or len(array) < 2 or array.is_floating_point() or array.is_complex():
        raise ValueError(
            "Offsets: expected a one-dimensional array of at least two integers, got shape "
            f"{tuple(array.shape)} and dtype {array.dtype}."
        )
    sizes = array.to(torch.int64).cpu().diff()
    if int(array[0]) != 0 or int(array[-1]) != atoms:
        raise ValueError(
            f"Offsets: expected 0 as the first and the number of atoms, {atoms}, as the last, got "
            f"{int(array[0])} and {int(array[-1])}."
        )
    if not bool((sizes > 0).all()):
        empty = int((sizes <= 0).nonzero()[0])
        raise ValueError(
            f"Offsets: expected increasing offsets, got {int(array[empty])} and then "
            f"{int(array[empty + 1])} for bag {empty}; a bag holds at least one atom."
        )
    return sizes


def _columns_of_numbers(bags: Sequence[Data], wording: Wording) -> list[Array]:
    """Return the bags as arrays; if all bags are one-dimensional, make them ``n_i x 1`` arrays."""
    _check_columns(bags, wording)
    arrays = [real_array(bag, wording((i,))) for i, bag in enumerate(bags)]
    if all(array.ndim == 1 for array in arrays):
        return [array[:, None] for array in arrays]
    return arrays


def _check_columns(bags: Sequence[Any], wording: Wording) -> None:
    """Check that bags that are data frames have the same columns in the same order."""
    first: list[Any] | None = None
    for i, bag in enumerate(bags):
        if is_table(bag):
            names = column_names(bag)
            if names != (first := names if first is None else first):
                raise ValueError(
                    f"{wording((i,))}: expected the columns {first}, as in other bags, got {names}. "
                    "Select the columns of each bag, bag[columns]."
                )


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


def _weight_arrays(weights: Iterable[Data], bags: Sequence[Array]) -> list[Array]:
    """Return the arrays of weights of all bags, not yet converted to tensors.

    Args:
        weights: For each bag, an array of length ``n_i``.
        bags: For each bag, its ``n_i x d`` array.

    Raises:
        ValueError: If the number of arrays differs from the number of bags, or the number of weights of
            a bag differs from its number of atoms.
    """
    arrays = [real_array(array, f"Weights of bag {i}") for i, array in enumerate(weights)]
    if len(arrays) != len(bags):
        raise ValueError(
            f"Expected one array of weights for each of {len(bags)} bags, got {len(arrays)}."
        )
    for i, (array, bag) in enumerate(zip(arrays, bags, strict=True)):
        if array.shape != bag.shape[:1]:
            raise ValueError(
                f"Bag {i}: expected {bag.shape[0]} weights, one for each atom, got an array of "
                f"shape {tuple(array.shape)}."
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
