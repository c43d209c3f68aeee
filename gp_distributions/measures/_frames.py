"""Tables with one row for each atom and a column that names its bag: frames, and cells of anndata."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.measures._bags import pad
from gp_distributions.measures._validation import Clouds, Wording, validated
from gp_distributions.measures.arrays import (
    Labels,
    as_floats,
    is_missing,
    object_array,
    real_array,
)
from gp_distributions.measures.tables import cells, column, table
from gp_distributions.warnings import MissingWarning, warn

# Largest number of entries of a matrix of cells that are read at once.
_PIECE = 10_000_000


def read_frame(
    frame: Any,
    bag: str,
    columns: str | Sequence[str],
    weight: str | None,
    kind: str | None = None,
    *,
    drop: bool = False,
) -> tuple[Clouds, Labels, list[Any] | None]:
    """Group the rows of a frame by bag, keeping their order within each bag.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, the masses of the
        bags, their names in order of first appearance, and for each the kinds of its atoms, if asked.

    Raises:
        TypeError: If ``frame`` is not a data frame.
        ValueError: If a column does not exist or has the wrong content.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("Expected at least one column of coordinates, got none.")
    given = names if weight is None else [*names, weight]
    read = table(frame, [bag, *given, *([] if kind is None else [kind])])
    ids = np.asarray(column(read, bag))
    entries = {name: column(read, name) for name in given}
    if kind is not None:
        entries[kind] = object_array(cells(column(read, kind)) or [])
    if drop:
        kept = _whole(ids, entries.values())
        ids, entries = ids[kept], {name: np.asarray(e)[kept] for name, e in entries.items()}
    values = [torch.from_numpy(_numbers(entries[name], name, ids)) for name in given]
    points = torch.stack(values[: len(names)], -1)
    weights = torch.ones_like(values[0]) if weight is None else values[-1]
    return split_rows_by_bag(points, weights, ids, bag, kinds=entries.get(str(kind)))


def split_rows_by_bag(
    points: Tensor,
    weights: Tensor,
    ids: Labels,
    bag: str,
    *,
    noun: str = "Bag",
    kinds: npt.NDArray[Any] | None = None,
) -> tuple[Clouds, Labels, list[npt.NDArray[Any]] | None]:
    """Group atoms by bag, keeping their order within each bag.

    Args:
        points: An ``N x d`` tensor of atoms.
        weights: ``N`` weights.
        ids: The bag of each atom.
        bag: Name of the column of bags, for error messages.
        noun: What a bag is called in error messages.
        kinds: The kinds of the atoms, or None.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the masses of the
        bags; their names in order of first appearance; and for each the kinds of its atoms, or None.

    Raises:
        ValueError: If the bag of an atom is missing or unhashable, or atoms or weights are invalid.
    """
    if not len(ids):
        raise ValueError("Expected at least one row, got none.")
    keys = ids.tolist()
    codes = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    code = np.fromiter(map(codes.__getitem__, keys), dtype=np.intp, count=len(keys))
    for key in filter(is_missing, codes):
        raise ValueError(
            f"Column {bag!r}: expected a bag for each row, got a missing value in row "
            f"{np.argmax(code == codes[key])} (counted from 0)."
        )
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    firsts = np.cumsum(counts) - counts
    labels, sizes = ids[order[firsts]], torch.from_numpy(counts)
    padded = pad(points[order], sizes), pad(weights[order], sizes)
    of_bags = None if kinds is None else np.split(kinds[order], firsts[1:])
    return validated(*padded, Wording(noun, labels=labels)), labels, of_bags


def _whole(ids: Labels, entries: Iterable[Any]) -> npt.NDArray[np.bool_]:
    """Return which atoms lack no value, and warn of the others."""
    each = [[is_missing(v) for v in np.asarray(e, dtype=object)] for e in entries]
    gaps: npt.NDArray[np.bool_] = np.logical_or.reduce(each)
    if gaps.any():
        left = set(ids[~gaps].tolist())
        empty = [each for each in dict.fromkeys(ids.tolist()) if each not in left]
        named = f" No atom is left of the bags {reprlib.repr(empty)}, which are left out."
        warn(
            f"{gaps.sum()} of {len(ids)} atoms lack a value and are left out.{named if empty else ''}",
            MissingWarning,
        )
    return ~gaps


def _numbers(values: Any, name: str, ids: Labels) -> npt.NDArray[np.float64]:
    """Return a column of finite numbers; the error names the row and the bag."""
    numbers = as_floats(np.asarray(values))
    plain = numbers.dtype.kind in "biuf"
    good = np.isfinite(numbers) if plain else [isinstance(v, int | float) for v in numbers]
    if plain and np.all(good):
        return np.array(numbers, dtype=np.float64)
    row = int(np.argmin(good))
    raise ValueError(
        f"Column {name!r}: expected finite numbers, got {reprlib.repr(numbers.tolist()[row])} "
        f"in row {row} (counted from 0), of bag {ids.tolist()[row]!r}. Convert text to numbers; give "
        f"each category a column, as pandas.get_dummies(frame, columns=[{name!r}], dtype=float) does; "
        "fill in a missing value, or drop the row."
    )


def read_cells(
    adata: Any, sample: str, rep: str | Sequence[str], layer: str | None
) -> tuple[Clouds, Labels]:
    """Group the cells of an annotated matrix by sample.

    Args:
        adata: An ``anndata.AnnData``, or an object with the same attributes ``obs``, ``obsm``,
            ``var_names``, ``X`` and ``layers``.
        sample: Name of the column of ``adata.obs`` that identifies the sample of each cell.
        rep: Coordinates of a cell: a key of ``adata.obsm``, ``"X"`` for all genes, or names of genes.
        layer: Key of ``adata.layers`` from which genes are read; None for ``adata.X``.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of equal weights, the numbers of cells, and
        the ``B`` samples in order of first appearance.

    Raises:
        TypeError: If the object lacks these attributes.
        ValueError: If there are no cells, a column, key or gene does not exist, or the sample of a cell
            is missing.
    """
    if not all(hasattr(adata, name) for name in ("obs", "obsm", "var_names", "X")):
        raise TypeError(f"Expected an AnnData object, got {type(adata).__name__}.")
    ids = np.asarray(column(table(adata.obs, [sample]), sample))
    points = torch.from_numpy(_dense(*_selected(adata, rep, layer)))
    ones = points.new_ones(len(points))
    return split_rows_by_bag(points, ones, ids, sample, noun="Sample")[:2]


def _selected(
    adata: Any, rep: str | Sequence[str], layer: str | None
) -> tuple[Any, npt.NDArray[np.intp] | None]:
    """Return a matrix with a row for each cell, and the columns of it to read, or None for all."""
    if isinstance(rep, str) and rep in adata.obsm:
        if layer is not None:
            raise ValueError(f"Expected no layer along with {rep!r} of adata.obsm, got {layer!r}.")
        return adata.obsm[rep], None
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError(
            f"Expected a matrix in adata.X for rep={rep!r}, got None. Give a layer, or a rep that is "
            f"a key of adata.obsm; keys: {[*adata.obsm]}."
        )
    if rep == "X":
        return matrix, None
    genes = [rep] if isinstance(rep, str) else list(rep)
    known = np.asarray(adata.var_names)
    for gene in genes:
        if (known == gene).sum() != 1:
            raise ValueError(
                "rep: expected a key of adata.obsm, 'X' or genes that occur once in adata.var_names, "
                f"got {gene!r}; keys of adata.obsm: {[*adata.obsm]}."
            )
    return matrix, np.array([np.flatnonzero(known == gene)[0] for gene in genes])


def _dense(matrix: Any, columns: npt.NDArray[np.intp] | None) -> npt.NDArray[np.float64]:
    """Read columns of a matrix in pieces into a dense array; the matrix may be sparse or in a file."""
    rows, width = matrix.shape
    if getattr(matrix, "format", None) == "csc":  # fast for columns, slow for rows
        # HDF5 files require indices that are unique and in increasing order.
        chosen, columns = np.unique(
            np.arange(width) if columns is None else columns, return_inverse=True
        )
        matrix = matrix[:, chosen].tocsr()
    read = np.empty((rows, width if columns is None else len(columns)))
    step = max(1, _PIECE // max(width, 1))
    for start in range(0, rows, step):
        piece = getattr(matrix, "iloc", matrix)[start : start + step]
        piece = piece if columns is None else piece[:, columns]
        piece = piece.compute() if hasattr(piece, "compute") else piece  # dask arrays
        dense = piece.toarray() if issparse(piece) else np.asarray(piece)
        read[start : start + step] = real_array(dense, "Cells")
    return read
