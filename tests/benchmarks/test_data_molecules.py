"""Molecules: read from files of the format of qm9pack, and from the package if it is installed."""

import csv
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data.molecules import Molecules, load_molecules

COLUMNS = [
    *("XYZ_file", "Index", "SMILES", "InChi", "N_atoms", "Stoichiometry", "Elements", "XYZ_Ang"),
    *("Mulliken_pop", "Harmonic_Freq_cmi", "RotA_GHz", "RotB_GHz", "RotC_GHz", "Dipole_debye"),
    *("Polarizability_bohr3", "HOMO_au", "LUMO_au", "HOMO_LUMO_gap_au", "R2_bohr2", "ZPVE_au"),
    *("InternalEnergy_0K_au", "InternalEnergy_298K_au", "Enthalphy_298K_au"),
    *("GibbsFreeEnergy_298K_au", "Heatcapacity_Cv_cal_mol_K"),
]
WATER = ["O", "H", "H"], [[-0.034, 0.97, 0.0076], [0.0, 1.0, 2.2e-06], [0.87, 1.3, -5.6e-07]]
METHANE = ["C", *"HHHH"], [[float(i), 0.5 * i, -2.0] for i in range(5)]
FLUORIDE = ["F", "H"], [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def short(number: float) -> str:
    """The text of a number as in the files, where 1.0 is "1." and exponents are capital."""
    return repr(number).removesuffix("0").upper() if number == int(number) else repr(number).upper()


def row(index: int, elements: Sequence[str], coordinates: Sequence[Sequence[float]]) -> list[str]:
    atoms = ",".join(f"'{symbol}'" for symbol in elements)
    places = ",".join("[" + ",".join(map(short, xyz)) + "]" for xyz in coordinates)
    known = {
        "Index": str(index),
        "SMILES": f"{elements[0]},{index}",
        "N_atoms": str(len(elements)),
        "Elements": f"[{atoms}]",
        "XYZ_Ang": f"[{places}]",
        "InternalEnergy_0K_au": f"-{index}.25",
        "Dipole_debye": "0.",
    }
    return [known.get(column, f"{k}.") for k, column in enumerate(COLUMNS)]


def write(path: Path, rows: Sequence[list[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the data of a package that cannot be imported."""
    data = tmp_path / "qm9pack" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    write(data / "qm9_part1.csv", [row(1, *METHANE), row(3, *WATER)])
    write(data / "qm9_part2.csv", [row(5, *FLUORIDE)])
    write(data / "qm9_part3.csv", [row(7, *WATER), row(9, *METHANE), row(11, *WATER)])
    monkeypatch.syspath_prepend(tmp_path)
    return data


def test_small_files(folder: Path) -> None:
    molecules = load_molecules()
    assert len(molecules) == 6
    assert molecules.indices.tolist() == [1, 3, 5, 7, 9, 11]
    assert molecules.smiles[1] == "O,3"
    assert molecules.clouds.sizes.tolist() == [5, 3, 2, 3, 5, 3]
    assert molecules.counts.tolist()[:3] == [[4, 1, 0, 0, 0], [2, 0, 0, 1, 0], [1, 0, 0, 0, 1]]
    water = molecules.clouds[1]
    assert water.points[:3, :3].tolist() == WATER[1]
    assert water.points[:3, 3].tolist() == [8, 1, 1]
    assert water.weights.tolist() == [1 / 3] * 3 + [0, 0]
    assert molecules.properties["u0"].tolist() == [-i - 0.25 for i in molecules.indices]
    assert molecules.properties["mu"].tolist() == [0] * 6
    cv = COLUMNS.index("Heatcapacity_Cv_cal_mol_K")
    assert molecules.properties["cv"].tolist() == [cv] * 6
    assert len(molecules.properties) == 15


def test_some_molecules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = load_molecules()
    chosen = set()
    for seed in range(4):
        some = load_molecules(3, seed=seed)
        assert load_molecules(3, seed=seed).indices.tolist() == some.indices.tolist()
        places = np.searchsorted(every.indices, some.indices)
        assert some.properties["u0"].tolist() == every.properties["u0"][places].tolist()
        assert some.clouds.sizes.tolist() == every.clouds.sizes[places].tolist()
        chosen.add(tuple(places))
    assert len(chosen) > 1
    assert capsys.readouterr() == ("", "")
    assert load_molecules(6, progress=True).smiles == every.smiles
    assert "Molecules" in capsys.readouterr().err
    for num in (0, 7):
        with pytest.raises(ValueError, match=f"num between 1 and 6, got {num}"):
            load_molecules(num)


@pytest.fixture(scope="module")
def molecules() -> Molecules:
    if find_spec("qm9pack") is None:
        pytest.skip("qm9pack is not installed")
    return load_molecules()


def test_published_numbers(molecules: Molecules) -> None:
    assert len(molecules) == len(molecules.clouds) == 130_831
    assert molecules.indices[[0, -1]].tolist() == [1, 133_885]
    assert np.all(np.diff(molecules.indices) > 0)
    assert (molecules.clouds.sizes.min(), molecules.clouds.sizes.max()) == (3, 29)
    np.testing.assert_array_equal(molecules.counts.sum(1), molecules.clouds.sizes)
    assert molecules.counts[:, 1:].sum(1).max() == 9
    assert molecules.smiles[:5] == ("C", "N", "O", "C#C", "C#N")
    assert molecules.properties["u0"][0] == -40.47893  # methane
    gap = molecules.properties["lumo"] - molecules.properties["homo"]
    np.testing.assert_allclose(gap, molecules.properties["gap"], atol=1.01e-4)


def test_geometry_of_methane(molecules: Molecules) -> None:
    (methane,) = molecules.clouds[:1].points[:, :5].tolist()
    assert [atom[3] for atom in methane] == [6, 1, 1, 1, 1]
    for atom in methane[1:]:
        assert math.dist(methane[0][:3], atom[:3]) == pytest.approx(1.092, abs=1e-3)  # Å
