"""Cells: outlines of osteosarcoma cells with their line and treatment."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gp_distributions.measures import PointClouds

_FILES = ("cells.txt", "cell_lines.txt", "treatments.txt")


@dataclass(frozen=True, eq=False)
class Cells:
    """Outlines of cells with their line and treatment.

    Args:
        outlines: For each of the ``N`` cells, an ``n_i x 2`` array of vertices in pixels, in
            counterclockwise order and in unknown pose.
        lines: Array of the ``N`` cell lines: ``"dunn"``, or ``"dlm8"``, which is derived from it and
            more aggressive.
        treatments: Array of the ``N`` treatments: ``"control"``, ``"cytd"`` (cytochalasin D) or
            ``"jasp"`` (jasplakinolide).
    """

    outlines: tuple[NDArray[np.float64], ...]
    lines: NDArray[np.str_]
    treatments: NDArray[np.str_]

    def clouds(self, atoms: int | None = None) -> PointClouds:
        """Return the outlines as clouds, with weights by arc length.

        Args:
            atoms: Number of points at equal arc length that replace the vertices. Default: the
                vertices; see :meth:`PointClouds.from_curves`.

        Returns:
            The ``N`` clouds.
        """
        return PointClouds.from_curves(self.outlines, atoms=atoms)


def load_cells() -> Cells:
    """Load the outlines of 650 mouse osteosarcoma cells from the files of the package geomstats.

    The package is not imported, only its files are read. The cells lie in the pose in which they were
    imaged, which carries no information. There are 392 cells of the line ``"dunn"`` and 258 of
    ``"dlm8"``; 318 were not treated, 175 were treated with cytochalasin D and 157 with jasplakinolide.
    Outlines have between 20 and 1759 vertices. In 304 of them, a vertex is repeated, and two cells occur
    twice: the outlines 363 and 396, and 513 and 519, are equal (counted from zero).

    Returns:
        The cells, in the order of the files.

    Raises:
        ImportError: If geomstats is not installed, or does not contain the files.

    Source: geomstats, ``datasets/data/cells`` (Miolane et al. 2020).
    """
    outlines, lines, treatments = (path.read_text().strip() for path in _paths())
    return Cells(
        tuple(np.array(one.split(), dtype=float).reshape(-1, 2) for one in outlines.split("\n\n")),
        np.array(lines.split()),
        np.array(treatments.split()),
    )


def _paths() -> list[Path]:
    """Return the paths of the files within the installed package."""
    spec = find_spec("geomstats")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        paths = [Path(place) / "datasets" / "data" / "cells" / name for name in _FILES]
        if all(path.is_file() for path in paths):
            return paths
    raise ImportError(
        "load_cells reads files of the package geomstats, which is not installed or lacks them. Run "
        "`pip install --no-deps geomstats`."
    )
