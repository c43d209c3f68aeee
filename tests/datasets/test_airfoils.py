import sys
from inspect import unwrap
from pathlib import Path

import numpy as np
import pytest

from gp_distributions.datasets import Airfoils, load_airfoils
from gp_distributions.datasets import airfoils as module


@pytest.fixture(scope="module")
def airfoils() -> Airfoils:
    pytest.importorskip("neuralfoil")
    return load_airfoils()


def test_published_figures(airfoils: Airfoils) -> None:
    targets = np.sort(airfoils.lift_to_drag)[::-1]
    assert len(targets) == 1874
    assert round(targets[0], 1) == 192.3
    assert round(targets[18], 1) == 165.5
    assert targets[19] < 165.5


def test_outlines(airfoils: Airfoils) -> None:
    assert len(airfoils.names) == len(airfoils.outlines) == len(airfoils.lift_to_drag)
    assert len(set(airfoils.names)) == len(airfoils.names)
    assert np.all(airfoils.lift_to_drag > 0)
    sizes = [len(outline) for outline in airfoils.outlines]
    assert (min(sizes), max(sizes)) == (27, 496)
    for outline in airfoils.outlines:
        assert outline.dtype == np.float64
        assert outline.shape[1:] == (2,)
        assert np.isfinite(outline).all()
        np.testing.assert_allclose((outline[0] + outline[-1]) / 2, [1.0, 0.0], atol=1e-9)
        leading_edge = np.hypot(*(outline - [1.0, 0.0]).T).argmax()
        np.testing.assert_allclose(outline[leading_edge], 0.0, atol=1e-9)


def test_targets_are_those_of_single_evaluations(airfoils: Airfoils) -> None:
    neuralfoil = pytest.importorskip("neuralfoil")
    for i in (0, 700, int(airfoils.lift_to_drag.argmax())):
        flow = neuralfoil.get_aero_from_coordinates(
            airfoils.outlines[i], alpha=4.0, Re=1e6, model_size="xlarge"
        )
        expected = flow["CL"].item() / flow["CD"].item()
        np.testing.assert_allclose(airfoils.lift_to_drag[i], expected, rtol=1e-6)


def test_split(airfoils: Airfoils) -> None:
    train, test = airfoils.split(200, seed=0)
    again, _ = airfoils.split(200, seed=0)
    other, _ = airfoils.split(200, seed=1)
    np.testing.assert_array_equal(train, again)
    assert not np.array_equal(train, other)
    assert len(train) == 200
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(1874))


def test_progress_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("neuralfoil")
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda *given: list(glob(*given))[::50])
    load = unwrap(module.airfoils_with_parameters)  # which the tests call once
    monkeypatch.setattr(module, "airfoils_with_parameters", load)
    airfoils = load_airfoils()
    assert capsys.readouterr().err == ""
    again = load_airfoils(progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Airfoils" in captured.err
    np.testing.assert_array_equal(again.lift_to_drag, airfoils.lift_to_drag)


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "neuralfoil", None)
    with pytest.raises(ImportError, match=r'pip install -c constraints.txt "\.\[airfoils\]"'):
        unwrap(module.airfoils_with_parameters)()
