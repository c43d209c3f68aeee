"""The ledger goes on where it was stopped, judges coverage with its error, and knows its own scores."""

from pathlib import Path

import pytest
import torch

from benchmarks.calibration import calibration_ledger, ledger_measures
from benchmarks.calibration.ledger_measures import Entry
from benchmarks.harness import Options, Row

ENTRIES = [Entry("normal noise", "fit", train, 1) for train in (15, 60, 200)]


def row(cover: float, error: float = 0.01, **more: object) -> Row:
    columns = {"task": "normal noise", "model": "fit", "T": 15, "draws": 1, "targets": 200}
    scores = {
        "cover50": 0.5,
        "kurtosis": 0.0,
        "conformal": 0.95,
        "conformal_error": 0.02,
        "jackknife": None,
    }
    return columns | scores | {"cover95": cover, "error": error, "seconds": 1.0} | more  # type: ignore[return-value]


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_ledger, "ROWS", tmp_path / "new" / "rows.jsonl")
    monkeypatch.setattr(calibration_ledger, "entries", lambda quick: iter(ENTRIES))
    seen: list[int] = []

    def measured(entry: Entry, seed: int, *, quick: bool) -> Row | None:
        if entry.train == 200 and len(seen) < 3:
            seen.append(0)
            raise KeyboardInterrupt
        seen.append(entry.train)
        return None if entry.train == 60 else row(0.95, T=entry.train)

    monkeypatch.setattr(calibration_ledger, "measured", measured)
    with pytest.raises(KeyboardInterrupt):
        calibration_ledger.run(Options(seeds=1))
    rows = calibration_ledger.run(Options(seeds=1))
    assert seen == [15, 60, 0, 200]
    assert [r["T"] for r in rows if "place" in r] == [15, 200]
    assert rows == calibration_ledger.run(Options(seeds=1))
    # Rows of another version of tasks and models do not count.
    monkeypatch.setattr(calibration_ledger, "version", lambda: "another")
    calibration_ledger.run(Options(seeds=1))
    assert seen == [15, 60, 0, 200, 15, 60, 200]


def test_places_regard_errors() -> None:
    covers = [(0.95, 0.01), (0.89, 0.01), (0.87, 0.01), (0.99, 0.01), (0.99, 0.004)]
    places = [calibration_ledger.place(row(*pair)) for pair in covers]
    assert places == ["inside", "low", "below", "high", "above"]


def test_calibration_error() -> None:
    top = (0.5 + torch.arange(20).double() / 50).flip(0)
    right = (torch.arange(20) % 3 > 0).double()
    gaps = (top - right).reshape(10, 2).mean(-1).abs()
    found = ledger_measures.calibration_error(top, right)
    assert found == pytest.approx(gaps.mean().item(), rel=1e-12)
