"""AnnData in memory, sparse, and in files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gp_distributions import PointClouds

anndata = pytest.importorskip("anndata")

CELLS, GENES = 90, 11
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(0.5, size=(CELLS, GENES)).astype(np.float32)
DONORS = RNG.choice(["d2", "d1", "d3"], CELLS)
PCA = RNG.normal(size=(CELLS, 4)).astype(np.float32)
FORMATS = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix}


def annotated(kind):
    # anndata writes strings of the type object only.
    cells = pd.Index([f"cell {i}" for i in range(CELLS)], dtype=object)
    genes = pd.Index([f"g{i}" for i in range(GENES)], dtype=object)
    donors = pd.Categorical(DONORS, categories=pd.Index(["d1", "d2", "d3", "d4"], dtype=object))
    return anndata.AnnData(
        X=FORMATS[kind](COUNTS),
        obs=pd.DataFrame({"donor": donors}, index=cells),
        var=pd.DataFrame(index=genes),
        obsm={"X_pca": PCA, "frame": pd.DataFrame(PCA, index=cells, columns=list("abcd"))},
        layers={"twice": FORMATS[kind](2 * COUNTS)},
    )


def expected(cells):
    order = dict.fromkeys(DONORS.tolist())
    return PointClouds.from_list({donor: cells[donor == DONORS].astype(float) for donor in order})


def check(adata):
    def read(**options):
        return PointClouds.from_anndata(adata, sample="donor", **options)

    def same(found, cells):
        wanted = expected(cells)
        assert found.labels.tolist() == wanted.labels.tolist()
        assert found.points.equal(wanted.points)
        assert found.weights.equal(wanted.weights)

    same(read(), PCA)
    same(read(rep="X"), COUNTS)
    same(read(rep=["g7", "g0", "g3"]), COUNTS[:, [7, 0, 3]])
    same(read(rep="g4"), COUNTS[:, [4]])
    same(read(rep=["g4", "g1"], layer="twice"), 2 * COUNTS[:, [4, 1]])


@pytest.mark.parametrize("piece", [None, 40])
@pytest.mark.parametrize("kind", FORMATS)
def test_matrices_in_memory_and_in_files(kind, piece, tmp_path: Path, monkeypatch):
    if piece:
        monkeypatch.setattr("gp_distributions.measures._anndata._PIECE", piece)
    adata = annotated(kind)
    check(adata)
    frame = PointClouds.from_anndata(adata, sample="donor", rep="frame")
    assert frame == PointClouds.from_anndata(adata, sample="donor")
    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert backed.isbacked
    check(backed)
    backed.file.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_selections_of_cells(kind, tmp_path: Path):
    adata = annotated(kind)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    for given in (adata, backed):
        made = PointClouds.from_anndata(given[DONORS != "d1"], sample="donor", rep=["g2", "g1"])
        cells = COUNTS[DONORS != "d1"][:, [2, 1]]
        assert set(made.labels) == {"d2", "d3"}
        assert made.points.sum().item() == cells.sum()
    backed.file.close()
