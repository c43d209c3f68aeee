"""Outlines of cells, from a small copy of the package's files and from the package if it is there."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data.cells import load_cells

OUTLINES = "0 0\n4 0\n4 -3\n\n1 1\n2 1\n2 2\n1 2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files in a package that cannot be imported."""
    place = tmp_path / "geomstats" / "datasets" / "data" / "cells"
    place.mkdir(parents=True)
    (tmp_path / "geomstats" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "geomstats", raising=False)
    importlib.invalidate_caches()
    return place


def write(folder: Path, lines: str = "dlm8\ndunn", treatments: str = "cytd\ncontrol\n") -> None:
    (folder / "cells.txt").write_text(OUTLINES)
    (folder / "cell_lines.txt").write_text(lines)
    (folder / "treatments.txt").write_text(treatments)


def test_reads_the_files_without_importing_the_package(folder: Path) -> None:
    write(folder)
    cells = load_cells()
    triangle, square = cells.outlines
    np.testing.assert_array_equal(triangle, [[0.0, 0.0], [4.0, 0.0], [4.0, -3.0]])
    assert square.shape == (4, 2)
    assert cells.lines.tolist() == ["dlm8", "dunn"]
    assert cells.treatments.tolist() == ["cytd", "control"]
    # Each vertex of the triangle with sides 4, 3 and 5 stands for half of its two sides.
    clouds = cells.clouds()
    np.testing.assert_allclose(clouds.weights[0].numpy(), np.array([4.5, 3.5, 4.0, 0.0]) / 12)
    assert cells.clouds(atoms=10).points.shape == (2, 10, 2)


def test_a_package_without_the_files(folder: Path) -> None:
    with pytest.raises(ImportError, match="or lacks them"):
        load_cells()


@pytest.mark.skipif(find_spec("geomstats") is None, reason="geomstats is not installed")
def test_published_figures() -> None:
    cells = load_cells()
    assert len(cells.outlines) == 650
    for labels, counts in (
        (cells.lines, {"dlm8": 258, "dunn": 392}),
        (cells.treatments, {"control": 318, "cytd": 175, "jasp": 157}),
    ):
        assert (
            dict(zip(*map(np.ndarray.tolist, np.unique(labels, return_counts=True)), strict=True))
            == counts
        )
    sizes = [len(outline) for outline in cells.outlines]
    assert (min(sizes), max(sizes)) == (20, 1759)
    assert cells.outlines[0].shape[1] == 2
