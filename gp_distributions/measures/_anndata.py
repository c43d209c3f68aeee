"""Cells of annotated matrices, grouped by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse

from gp_distributions.measures.arrays import Clouds, Labels, real_array
from gp_distributions.measures.frames import split_rows_by_bag
from gp_distributions.measures.tables import column, table

# Largest number of entries of a matrix of cells that are read at once.
_PIECE = 10_000_000


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
