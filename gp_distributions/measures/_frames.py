"""Tables with one row for each atom and a column that names its bag: frames, and cells of anndata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.measures._bags import pad
from gp_distributions.measures._validation import Wording, validated
from gp_distributions.measures.arrays import (
    as_floats,
    is_missing,
    is_number,
    real_array,
    shown,
    to_tensors,
)
from gp_distributions.measures.tables import Table, column, row_names, table

# Largest number of entries of a matrix of cells that are read at once.
_PIECE = 10_000_000


def read_frame(
    frame: Any, bag: str, columns: str | Sequence[str], weight: str | None
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group the rows of a frame by bag, keeping their order within each bag.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the names of the
        bags in order of first appearance.

    Raises:
        TypeError: If ``frame`` is not a data frame.
        ValueError: If a column does not exist or has the wrong content.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("Expected at least one column of coordinates, got none.")
    given = names if weight is None else [*names, weight]
    read = table(frame, [bag, *given])
    ids = np.asarray(column(read, bag))
    if not len(ids):
        raise ValueError("Expected a frame with at least one row, got an empty frame.")
    values = to_tensors([_numbers(read, name, ids) for name in given])
    points = torch.stack(values[: len(names)], -1)
    weights = torch.ones_like(values[0]) if weight is None else values[-1]
    return split_rows_by_bag(points, weights, ids, bag)


def split_rows_by_bag(
    points: Tensor, weights: Tensor, ids: npt.NDArray[Any], bag: str, noun: str = "Bag"
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group atoms by bag, keeping their order within each bag.

    Args:
        points: An ``N x d`` tensor of atoms.
        weights: ``N`` weights.
        ids: The bag of each atom.
        bag: Name of the column of bags, for error messages.
        noun: What a bag is called in error messages.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of normalised weights, and the names of the
        bags in order of first appearance.

    Raises:
        ValueError: If the bag of an atom is missing or unhashable, or atoms or weights are invalid.
    """
    keys = ids.tolist()
    try:
        codes = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    except TypeError as error:
        raise ValueError(
            f"Column {bag!r}: expected values that name bags, such as strings or numbers, got "
            f"an {error}."
        ) from error
    if any(map(is_missing, codes)):
        row = next(row for row, key in enumerate(keys) if is_missing(key))
        raise ValueError(
            f"Column {bag!r}: expected a bag for each row, got a missing value in row {row} (counted "
            "from 0)."
        )
    code = np.fromiter(map(codes.__getitem__, keys), dtype=np.intp, count=len(keys))
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code)
    labels = ids[order[np.cumsum(counts) - counts]]
    sizes = torch.from_numpy(counts)
    padded = pad(points[order], sizes), pad(weights[order], sizes)
    return *validated(*padded, Wording(noun, labels=labels)), labels


def _numbers(frame: Table, name: str, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column of finite numbers; the error names the row and the bag."""
    values = np.asarray(column(frame, name))
    numbers = as_floats(values)
    plain = numbers.dtype.kind in "biuf"
    bad = ~np.isfinite(numbers) if plain else np.array([not is_number(v) for v in values])
    if plain and not bad.any():
        return numbers
    row = int(bad.argmax())
    raise ValueError(
        f"Column {name!r}: expected finite numbers, got {shown(values.tolist()[row])} in row "
        f"{row_names(frame).tolist()[row]!r}, of bag {ids.tolist()[row]!r}. Convert text to numbers; "
        "correct or fill in the value, or drop the row."
    )


def read_cells(
    adata: Any, sample: str, rep: str | Sequence[str], layer: str | None
) -> tuple[Tensor, Tensor, npt.NDArray[Any]]:
    """Group the cells of an annotated matrix by sample.

    Args:
        adata: An ``anndata.AnnData``, or an object with the same attributes ``obs``, ``obsm``,
            ``var_names``, ``X`` and ``layers``.
        sample: Name of the column of ``adata.obs`` that identifies the sample of each cell.
        rep: Coordinates of a cell: a key of ``adata.obsm``, ``"X"`` for all genes, or names of genes.
        layer: Key of ``adata.layers`` from which genes are read; None for ``adata.X``.

    Returns:
        A ``B x n x d`` tensor of points, a ``B x n`` tensor of equal weights, and the ``B`` samples
        in order of first appearance.

    Raises:
        TypeError: If the object lacks these attributes.
        ValueError: If there are no cells, a column, key or gene does not exist, or the sample of a cell
            is missing.
    """
    missing = [name for name in ("obs", "obsm", "var_names", "X") if not hasattr(adata, name)]
    if missing:
        raise TypeError(
            f"Expected an AnnData object, got {type(adata).__name__} without {', '.join(missing)}."
        )
    ids = np.asarray(column(table(adata.obs, [sample]), sample))
    if not len(ids):
        raise ValueError("Expected at least one cell, got none.")
    matrix, columns = _selected(adata, rep, layer)
    name = f"rep {rep!r}" if isinstance(rep, str) else "The matrix of genes"
    points = torch.from_numpy(_dense(matrix, columns, name))
    return split_rows_by_bag(points, points.new_ones(len(points)), ids, sample, "Sample")


def _selected(
    adata: Any, rep: str | Sequence[str], layer: str | None
) -> tuple[Any, npt.NDArray[np.intp] | None]:
    """Return a matrix with a row for each cell, and the columns of it to read, or None for all."""
    if isinstance(rep, str) and rep in adata.obsm:
        if layer is not None:
            raise ValueError(f"Expected no layer along with {rep!r} of adata.obsm, got {layer!r}.")
        return adata.obsm[rep], None
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"Expected a key of adata.layers, got {layer!r}; keys: {[*adata.layers]}.")
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError(
            f"Expected a matrix in adata.X for rep={rep!r}, got None. Give a layer, or a rep that is "
            f"a key of adata.obsm; keys: {[*adata.obsm]}."
        )
    if rep == "X":
        return matrix, None
    genes = [rep] if isinstance(rep, str) else list(rep)
    if not genes:
        raise ValueError("Expected at least one gene in rep, got none.")
    known = np.asarray(adata.var_names)
    positions = [np.flatnonzero(known == gene) for gene in genes]
    for gene, found in zip(genes, positions, strict=True):
        if len(found) != 1:
            what = "a gene that occurs once in adata.var_names"
            if isinstance(rep, str):
                what = f"a key of adata.obsm, 'X' or {what}"
            raise ValueError(
                f"rep: expected {what}, got {gene!r}, which occurs {len(found)} times; keys of "
                f"adata.obsm: {[*adata.obsm]}."
            )
    return matrix, np.concatenate(positions)


def _dense(matrix: Any, columns: npt.NDArray[np.intp] | None, name: str) -> npt.NDArray[np.float64]:
    """Read columns of a matrix in pieces into a dense array; the matrix may be sparse or in a file."""
    if len(matrix.shape) != 2:
        raise ValueError(f"{name}: expected a matrix, got shape {tuple(matrix.shape)}.")
    rows, width = matrix.shape
    read = np.empty((rows, width if columns is None else len(columns)))
    if getattr(matrix, "format", None) == "csc":  # fast for columns, slow for rows
        chosen = np.arange(width) if columns is None else columns
        step = max(1, _PIECE // rows)
        for start in range(0, len(chosen), step):
            # HDF5 files require indices that are unique and in increasing order.
            part, inverse = np.unique(chosen[start : start + step], return_inverse=True)
            read[:, start : start + step] = _array(matrix[:, part], name)[:, inverse]
        return read
    step = max(1, _PIECE // max(width, 1))
    for start in range(0, rows, step):
        piece = getattr(matrix, "iloc", matrix)[start : start + step]
        read[start : start + step] = _array(piece if columns is None else piece[:, columns], name)
    return read


def _array(piece: Any, name: str) -> npt.NDArray[Any]:
    if hasattr(piece, "compute"):  # dask arrays
        piece = piece.compute()
    return np.asarray(real_array(piece.toarray() if issparse(piece) else np.asarray(piece), name))
