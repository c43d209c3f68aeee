"""Single-cell data: one row for each cell, annotated as in the objects of anndata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor

from gp_distributions.measures._frames import split_rows_by_bag
from gp_distributions.measures.arrays import real_array
from gp_distributions.measures.tables import column, table

# Largest number of entries of a matrix that are read at once.
_PIECE = 10_000_000


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
    positions: dict[str, list[int]] = {gene: [] for gene in genes}
    for position, gene in enumerate(adata.var_names):
        if gene in positions:
            positions[gene].append(position)
    for gene, found in positions.items():
        if len(found) != 1:
            what = "a gene that occurs once in adata.var_names"
            if isinstance(rep, str):
                what = f"a key of adata.obsm, 'X' or {what}"
            raise ValueError(
                f"rep: expected {what}, got {gene!r}, which occurs {len(found)} times; keys of "
                f"adata.obsm: {[*adata.obsm]}."
            )
    return matrix, np.array([positions[gene][0] for gene in genes])


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
        if hasattr(matrix, "iloc"):
            piece = matrix.iloc[start : start + step]
        else:
            piece = matrix[start : start + step]
        if columns is not None:
            piece = piece[:, columns]
        read[start : start + step] = _array(piece, name)
    return read


def _array(piece: Any, name: str) -> npt.NDArray[Any]:
    if hasattr(piece, "compute"):  # dask arrays
        piece = piece.compute()
    return np.asarray(real_array(piece.toarray() if issparse(piece) else np.asarray(piece), name))
