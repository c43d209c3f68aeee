"""Molecules: the geometries and properties of QM9."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import compress, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from gp_distributions.measures import PointClouds

_CHARGES = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
# Columns of the files by the customary names of the properties.
_PROPERTIES = {
    "A": "RotA_GHz",
    "B": "RotB_GHz",
    "C": "RotC_GHz",
    "mu": "Dipole_debye",
    "alpha": "Polarizability_bohr3",
    "homo": "HOMO_au",
    "lumo": "LUMO_au",
    "gap": "HOMO_LUMO_gap_au",
    "r2": "R2_bohr2",
    "zpve": "ZPVE_au",
    "u0": "InternalEnergy_0K_au",
    "u298": "InternalEnergy_298K_au",
    "h298": "Enthalphy_298K_au",
    "g298": "GibbsFreeEnergy_298K_au",
    "cv": "Heatcapacity_Cv_cal_mol_K",
}
_FILES = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")
_PIECE = 5000  # molecules whose text is in memory at a time
_COLUMNS = ("Index", "SMILES", "N_atoms", "Elements", "XYZ_Ang", *_PROPERTIES.values())


@dataclass(frozen=True, eq=False)
class Molecules:
    r"""Geometries of molecules and their properties.

    Attributes:
        clouds: The ``N`` molecules as clouds of 3 to 29 atoms of equal weight in four dimensions: the
            three coordinates in Å, and the nuclear charge.
        properties: The ``N`` values of each property. Energies are in Hartree; 1 Hartree is 627.5095
            kcal/mol. ``"u0"`` and ``"u298"`` are the internal energies at 0 K and 298.15 K, ``"h298"``
            the enthalpy, ``"g298"`` the free energy, ``"zpve"`` the vibrational energy at zero
            temperature, ``"homo"``, ``"lumo"`` and ``"gap"`` those of orbitals. The others are the
            rotational constants ``"A"``, ``"B"`` and ``"C"`` (GHz), the dipole moment ``"mu"``
            (debye), the polarisability ``"alpha"`` (bohr³), the spatial extent ``"r2"`` (bohr²) and
            the heat capacity ``"cv"`` (cal / mol K).
        counts: An ``N x 5`` array with the numbers of H, C, N, O and F atoms.
        smiles: The ``N`` structural formulas as SMILES.
        indices: The ``N`` numbers of the molecules in QM9, from 1 to 133885.
    """

    clouds: PointClouds
    properties: Mapping[str, NDArray[np.float64]]
    counts: NDArray[np.int64]
    smiles: tuple[str, ...]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def atoms(self) -> PointClouds:
        """The molecules as clouds of atoms of mass one in space, whose kinds are elements."""
        names = np.full(10, "", dtype="<U1")
        names[[*_CHARGES.values()]] = [*_CHARGES]
        points, weights = self.clouds.points, self.clouds.weights
        kinds = names[points[..., 3].long().numpy()]
        return PointClouds(points[..., :3], (weights > 0).double(), kinds)


def load_molecules(num: int | None = None, *, seed: int = 0, progress: bool = False) -> Molecules:
    """Load the 130,831 molecules of QM9: stable organic molecules of up to nine heavy atoms.

    Geometries and properties were computed by density functional theory (B3LYP/6-31G(2df,p)). The
    package qm9pack leaves out 3054 of the 133,885 molecules, whose structures failed a check. Its files
    are read as text; nothing of the package is imported. Loading all molecules takes about 7 s and,
    for a while, 500 MB of memory.

    Args:
        num: Number of molecules, chosen at random. Default: all.
        seed: Random seed for this choice.
        progress: Whether to show a progress bar over the molecules.

    Returns:
        The molecules, in the order of QM9.

    Raises:
        ImportError: If qm9pack is not installed.
        ValueError: If ``num`` is not between 1 and the number of molecules.

    Source: Ramakrishnan, Dral, Rupp and von Lilienfeld 2014 (Scientific Data 1, 140022), through
    qm9pack.
    """
    spec = find_spec("qm9pack")  # does not import the package, which needs an old setuptools
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "load_molecules reads files of the package qm9pack. Run `pip install --no-deps qm9pack`."
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    totals = [_count(folder / name) for name in _FILES]
    chosen = np.ones(sum(totals), dtype=bool)
    if num is not None:
        if not 0 < num <= len(chosen):
            raise ValueError(f"Expected num between 1 and {len(chosen)}, got {num}.")
        chosen[np.random.default_rng(seed).permutation(len(chosen))[num:]] = False
    pieces = []
    with tqdm(total=int(chosen.sum()), desc="Molecules", disable=not progress) as bar:
        for name, flags in zip(_FILES, np.split(chosen, np.cumsum(totals)[:-1]), strict=True):
            for rows in _read(folder / name, flags):
                pieces.append(_parsed(rows))
                bar.update(len(rows))
    columns = map(np.concatenate, zip(*pieces, strict=True))
    sizes, charges, coordinates, properties, smiles, indices = columns
    offsets = np.append(0, sizes.cumsum())
    return Molecules(
        PointClouds.from_ragged(np.column_stack([coordinates, charges]), offsets),
        dict(zip(_PROPERTIES, properties.T, strict=True)),
        np.add.reduceat(charges[:, None] == [*_CHARGES.values()], offsets[:-1], dtype=np.int64),
        tuple(smiles),
        indices,
    )


def _count(path: Path) -> int:
    """Count the molecules of a file: all lines but the header."""
    with path.open("rb") as file:
        return sum(1 for _ in file) - 1


def _read(path: Path, chosen: NDArray[np.bool_]) -> Iterator[list[tuple[str, ...]]]:
    """Read the columns of the chosen molecules of a file, a piece at a time."""
    with path.open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
        fields = itemgetter(*map(header.index, _COLUMNS))
        rows = map(fields, csv.reader(compress(file, chosen)))
        while piece := list(islice(rows, _PIECE)):
            yield piece


def _parsed(rows: Sequence[tuple[str, ...]]) -> tuple[NDArray[Any], ...]:
    """Convert the text of molecules to numbers.

    Returns:
        The numbers of atoms, the charges and coordinates of all atoms one after the other, and the
        properties, formulas and numbers of the molecules.
    """
    indices, smiles, counts, elements, coordinates, *properties = zip(*rows, strict=True)
    # Without brackets and quotes, nested lists are entries and commas.
    table = str.maketrans("", "", "[]' ")
    letters, numbers = (
        ",".join(texts).translate(table).split(",") for texts in (elements, coordinates)
    )
    return (
        np.array(counts, dtype=np.int64),
        np.array([_CHARGES[symbol] for symbol in letters]),
        np.array(numbers, dtype=np.float64).reshape(-1, 3),
        np.array(properties, dtype=np.float64).T,
        np.array(smiles, dtype=object),
        np.array(indices, dtype=np.int64),
    )
