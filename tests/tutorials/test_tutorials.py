"""The notebooks run, and their stored outputs belong to their code."""

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest

from gp_distributions.datasets import airfoils
from tutorials.__main__ import TutorialError, cell_id, digest, notebooks, run

NOTEBOOKS = notebooks()
LARGEST = 300_000  # bytes
# What a notebook's first cell of code sets, in seconds rather than minutes.
SMALL: dict[str, dict[str, Any]] = {
    "01": {"ATOMS": 32, "TRAIN": 30},
    "02": {"ATOMS": 20, "SAMPLES": 6, "TRAIN": 20, "TEST": 20, "SEEDS": range(1)},
    "03": {"TRAIN": 20, "TEST": 20, "LENGTHSCALES": 3, "RIDGES": 3}
    | {"POOL": 30, "CLOUDS": 12, "SEEDS": range(1)},
    "04": {"CLOUDS": 12, "STEPS": 2, "GUARD": 2, "SEEDS": range(1)},
    "05": {"ATOMS": 16, "GRID": 3, "SEEDS": range(1), "INITIAL": 4, "EVALUATIONS": 5}
    | {"DESIGNS": 9, "LAYOUTS": 6, "ITERATIONS": 5},
    "06": {"TRAIN": 30, "TEST": 40, "MANY": 20},
    "07": {"ATOMS": 24, "TRAIN": 40, "SLICES": 16, "STEPS": 10},
    "08": {"TRAIN": 60, "TEST": 40, "MESHES": 20, "VERTICES": 60},
    "09": {"ATOMS": 24, "TRAIN": 30, "DEGREES": 60, "SOLIDS": (12, 8), "POINTS": 60}
    | {"INITIAL": 4, "EVALUATIONS": 5, "SEEDS": range(1)},
    "10": {"PATIENTS": 40, "TRAIN": 30, "SIZES": (10, 20)},
    "11": {"TRAIN": 15, "TEST": 20, "ATOMS": 16, "FOLDS": 3},
}
# Traces of where or when a notebook ran.
TRACES = re.compile(r"/(root|home|tmp|work|Users|usr)/|[A-Z]:\\|site-packages|\d\d:\d\d:\d\d")


@pytest.fixture
def few_airfoils(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load every tenth airfoil."""
    found, parameters = airfoils.airfoils_with_parameters()
    columns = (found.names, found.outlines, found.lift_to_drag)
    few = airfoils.Airfoils(*(column[::10] for column in columns)), parameters[::10]
    monkeypatch.setattr(airfoils, "airfoils_with_parameters", lambda **_: few)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def write(path: Path, *sources: str) -> Path:
    """Write a notebook that has not been run."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("few_airfoils", "shortest_fits")
# At small sizes, a dozen clouds may leave the hyperparameters open.
@pytest.mark.filterwarnings("ignore::gp_distributions.warnings.UndeterminedWarning")
def test_notebook_runs_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path)):
        source = cell.source
        if number == 0:
            for name, value in SMALL[path.name[:2]].items():
                assert re.search(rf"^[A-Z, ]*\b{name}\b.* = ", source, flags=re.MULTILINE), name
                source += f"\n{name} = {value}"
        exec(compile(source, f"{path.name} ({cell.id})", "exec"), namespace)
        plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_as_it_was_run(path: Path) -> None:
    notebook, cells = read(path), code_cells(path)
    assert path.stat().st_size <= LARGEST
    assert notebook.metadata["executed"] == digest(notebook), "run: python -m tutorials"
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert [cell.id for cell in notebook.cells] == [
        cell_id(path, index) for index in range(len(notebook.cells))
    ]
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    for output in outputs:
        for kind, text in output.get("data", {"text/plain": output.get("text", "")}).items():
            assert kind == "image/png" or not TRACES.search(text), text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_a_title_and_links_that_exist(path: Path) -> None:
    cells = read(path).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert sum(len(re.findall(r"^# ", text, flags=re.MULTILINE)) for text in prose) == 1
    for target in re.findall(r"\]\(([^)#]+)\)", "\n".join(prose)):
        assert "://" in target or (path.parent / target).exists(), target


def test_runs_in_place_and_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    path = write(
        tmp_path / "09_new.ipynb",
        "import os, sys\n'Agg' in os.environ.get('MPLBACKEND', '')",
        "print('seen')\nprint('not kept', file=sys.stderr)",
    )
    run(path, progress=False)
    first = path.read_text()
    flag, printed = code_cells(path)
    assert flag.outputs[0].data["text/plain"] == "False"
    assert [output.text for output in printed.outputs] == ["seen\n"]
    assert "09_new.ipynb, cell 1: not kept" in capsys.readouterr().err
    assert (flag.id, printed.id) == ("09-00", "09-01")
    assert read(path).metadata["executed"] == digest(read(path))
    run(path, progress=False)
    assert path.read_text() == first


def test_a_failing_notebook_stays_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "09_new.ipynb", "1", "raise KeyError('lost')", "2")
    before = path.read_bytes()
    with pytest.raises(
        TutorialError, match=r"(?s)09_new.ipynb, cell 1 .*KeyError: 'lost'"
    ) as error:
        run(path, progress=False)
    assert "\x1b" not in str(error.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
