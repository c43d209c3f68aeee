"""Every benchmark runs at small sizes, and the harness times, tabulates and records as it should."""

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import (
    compared_search,
    distance_comparison,
    everything,
    fit_speed,
    harness,
    report,
    rigid_speed,
    scripts,
    sinkhorn_potentials,
    slice_accuracy,
    sliced_wasserstein_gram,
    t_batch_speed,
    targets,
)

SCRIPTS = [import_module(f"benchmarks.{name}") for name in scripts.SCRIPTS]
QUICK = ["--quick", "--repeats", "1", "--seeds", "1"]
TIMED = [sliced_wasserstein_gram, fit_speed, rigid_speed, t_batch_speed, sinkhorn_potentials]
ALL_TARGETS = (*targets.BUDGETS, *targets.REACH)
MODULES = {
    "__init__",
    "__main__",
    "everything",
    "exact",
    "gaussian_toy",
    "harness",
    "image_protocol",
    "ledger_causes",
    "ledger_measures",
    "ledger_tasks",
    "machines",
    "report",
    "scripts",
    "targets",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: spinning threads make small work ten times slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_all_benchmarks_are_run_and_tested() -> None:
    files = {path.stem for path in Path(harness.__file__).parent.glob("*.py")}
    assert set(scripts.SCRIPTS) == files - MODULES
    assert len(set(scripts.SCRIPTS)) == len(scripts.SCRIPTS)
    assert {*scripts.LONG, *scripts.SIDE_BY_SIDE} <= set(scripts.SCRIPTS)


def test_results_are_those_of_the_recorded_rows() -> None:
    for file, text in report.pages(report.RECORDS).items():
        assert file.read_text(encoding="utf-8") == text, "Run `python -m benchmarks.report`."


# What a quick run still takes long for, and what is put in its place.
SMALLER: dict[str, dict[str, Any]] = {
    "compared_search": {
        "searches": lambda task, ways, seeds, whole=compared_search.searches: whole(
            task, ways, seeds[:1]
        )
    },
    "distance_comparison": {"DISTANCES": dict(list(distance_comparison.DISTANCES.items())[::4])},
    "large_sparse": {"new_processes": lambda quick: ThreadPoolExecutor(1)},
    "scaled_distance": {"_ALL_ATOMS": 0},
    "support_measure_machines": {"GAMMAS": (0.1, 1.0), "DEGREES": (2, 3)},
}
NEEDED = {"molecules": "qm9pack", "large_sparse": "pyarrow", "cells": "geomstats"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_quick_run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script.__name__.rpartition(".")[2]
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    for constant, value in SMALLER.get(name, {}).items():
        monkeypatch.setattr(script, constant, value)
    rows = harness.main(script.__doc__, script.run, QUICK)
    assert f"== {name}: " in capsys.readouterr().out
    assert rows
    for row in rows:
        numbers = [v for v in row.values() if isinstance(v, float)]
        assert numbers
        assert all(map(math.isfinite, numbers))
        if script in TIMED:
            assert row["ours_s"] > 0


@pytest.fixture
def two_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a run of all be one of two scripts, the first of which fails; the names of those run."""
    ran = []

    def fails(options: harness.Options) -> list[harness.Row]:
        ran.append("fit_speed")
        raise OSError("no network")

    def passes(options: harness.Options) -> list[harness.Row]:
        ran.append("slice_accuracy")
        return [{"error": 1.0}]

    monkeypatch.setattr(everything, "SCRIPTS", ("fit_speed", "slice_accuracy"))
    monkeypatch.setattr(fit_speed, "run", fails)
    monkeypatch.setattr(slice_accuracy, "run", passes)
    return ran


def test_quick_runs_are_recorded_apart(two_scripts: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(SystemExit, match="failed: fit_speed"):
        everything.main([*QUICK, "--record", str(folder)])
    assert two_scripts == ["fit_speed", "slice_accuracy"]
    record = json.loads((folder / "slice_accuracy.json").read_text())
    assert record["quick"]
    assert record["machine"]["torch"]
    assert record["rows"] == [{"error": 1.0}]
    assert record["command"] == "python -m benchmarks.slice_accuracy " + " ".join(QUICK)
    assert report.read(folder) == {}
    assert not (tmp_path / "RESULTS.md").exists()


def test_run_of_all_goes_on_after_a_failure_and_continues_there(
    two_scripts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "results"
    for _ in range(2):
        with pytest.raises(SystemExit, match="failed: fit_speed"):
            everything.main(["--record", str(folder)])
    assert "no network" in capsys.readouterr().err
    assert two_scripts == ["fit_speed", "slice_accuracy", "fit_speed"]
    assert "Not run: `python -m benchmarks.fit_speed`." in (folder / "fit_speed.md").read_text()
    assert "| error |\n| --- |\n| 1 |" in (folder / "slice_accuracy.md").read_text()
    # Rows of another command do not count.
    with pytest.raises(SystemExit):
        everything.main(["--record", str(folder), "--seeds", "7"])
    assert two_scripts[3:] == ["fit_speed", "slice_accuracy"]


def recorded(folder: Path, benchmark: str, rows: list[harness.Row], **more: object) -> None:
    """Record rows as the harness would."""
    record = {
        "benchmark": benchmark,
        "finished": "2026-01-02T00:00",
        "wall_s": 60.0,
        "command": f"python -m benchmarks.{benchmark}",
        "quick": False,
        "machine": {"torch": "1"},
        "rows": rows,
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{benchmark}.json").write_text(json.dumps(record | more))


def line_of(text: str, start: str) -> list[str]:
    """Return the cells of the only table row with this beginning."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_report_says_what_is_met_what_is_not_and_what_was_not_run(tmp_path: Path) -> None:
    fit = {"name": "fit / fit on precomputed distances, T=500 n=50 d=2", "ratio": 0.5}
    toy = {"name": "toy d=4 normal: learned", "evs": 0.9969, "coverage": 0.95}
    uniform = {"name": "uniform / fastest primitives", "ratio": 1.504}
    noise: list[harness.Row] = [
        {
            "name": "toy A, trained on 5, 10, 30, 100",
            "coverage": value,
            "reach": "coverage .92 to .97",
            "met": value > 0.92,
        }
        for value in (0.93, 0.91)
    ]
    folder = tmp_path / "results"
    recorded(folder, "fit_speed", [fit])
    recorded(folder, "mmd_gram", [fit], quick=True)
    recorded(folder, "reference_learning", [toy])
    recorded(folder, "sliced_wasserstein_gram", [uniform])
    recorded(folder, "sampling_noise", noise)
    report.write(folder)
    text = (tmp_path / "RESULTS.md").read_text()
    everywhere, all_targets = text, text[text.index("## Speed") :]
    text = all_targets

    assert "targets, 1 are met, 3 are missed and " in everywhere
    command = "`python -m benchmarks.fit_speed`"
    assert line_of(text, "marginal-likelihood fit")[1:] == ["0.5", "≤ 0.6", "yes", command, "-"]
    assert line_of(text, "Sinkhorn toy, d = 4")[1:4] == ["0.9969", "≥ 0.997", "NO"]
    assert line_of(text, "Sinkhorn toy, d = 4")[-1] == "Unknown."
    reason = targets.REASONS[targets.BUDGETS[0].text]
    assert line_of(text, targets.BUDGETS[0].text)[1:4] == ["1.504", "≤ 1.5", "NO"]
    assert line_of(text, targets.BUDGETS[0].text)[-1] == reason
    assert everywhere[: -len(text)].count(reason) == text.count(reason) == 1
    assert line_of(text, "sampling noise, toy A, trained on mixed sizes: cov")[1:4] == [
        "0.930 0.910",
        ".92 to .97",
        "NO",
    ]
    # A script that was not run, and one that ran without this row.
    assert line_of(text, "exact MMD Gram matrix, T = 500")[1:4] == ["not run", "≤ 1", "-"]
    assert line_of(text, "Sinkhorn toy, d = 6")[1:4] == ["not run", "≥ 0.95", "-"]
    # Nor are targets of scripts that were not run counted as not met.
    index = everywhere[everywhere.index("## Questions") : everywhere.index("## Speed")]
    (line,) = (line for line in index.splitlines() if "results/unknown_pose.md" in line)
    assert " | - | not run | - |" in line
    page = (folder / "fit_speed.md").read_text()
    assert page.startswith("# Does a marginal-likelihood fit")
    assert f"{command}, 60 s, 2026-01-02." in page
    assert "Not run: `python -m benchmarks.mmd_gram`." in (folder / "mmd_gram.md").read_text()


def test_report_has_every_target_once() -> None:
    text = report.results({})
    lines = ALL_TARGETS
    assert len({line.text for line in lines}) == len(lines)
    assert {line.script for line in lines} <= set(scripts.SCRIPTS)
    assert set(targets.REASONS) <= {line.text for line in lines}
    for line in lines:
        assert line_of(text, f"{line.text} |")[1] == "not run"


@pytest.mark.parametrize("script", sorted({line.script for line in ALL_TARGETS}))
def test_targets_find_their_rows(script: str) -> None:
    run = report.read(report.RECORDS).get(script)
    if run is None:
        pytest.skip("not run yet")
    for line in ALL_TARGETS:
        if line.script == script:
            figure, met = line.judge(run.rows)  # raises LookupError
            assert figure
            assert isinstance(met, bool)


def test_tables_of_rows_with_other_columns_are_apart() -> None:
    rows: list[harness.Row] = [
        {"name": "a|b", "ratio": 1.0, "more": None},
        {"name": "c", "ratio": 2.0, "more": None},
        {"other": True},
    ]
    assert report.markdown(rows).splitlines() == [
        "| name | ratio |",
        "| --- | --- |",
        "| a\\|b | 1 |",
        "| c | 2 |",
        "",
        "| other |",
        "| --- |",
        "| yes |",
    ]


def test_slices_are_ranked_as_the_design_says() -> None:
    errors = slice_accuracy.errors(3, seed=0, number=50)
    ranked = ["ours", "Fibonacci + exact mean", "orthogonal + exact mean", "iid"]
    assert sorted(set(errors) - {"reference"}, key=errors.__getitem__) == ranked
    assert errors["reference"] < 0.3 * errors["ours"]


def test_fits_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_speed, "fit_ours", lambda model: model)
    with pytest.raises(RuntimeError, match="did not do the same work"):
        fit_speed.compare_fits(20, 10, repeats=1)


def test_sides_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    calls: list[str] = []

    def spend(name: str, seconds: float) -> None:
        nonlocal clock
        clock += seconds
        calls.append(name)

    def side(name: str, seconds: float) -> harness.Side:
        def prepare() -> harness.Work:
            spend(f"prepare {name}", 100)
            return lambda: spend(name, seconds)

        return prepare

    monkeypatch.setattr(harness.time, "perf_counter", lambda: clock)
    sides = {"a": side("a", 1), "b": side("b", 2)}
    timings = harness.interleave(sides, repeats=3, warmup=1)
    # One round to warm up, three timed rounds, and one for memory.
    assert calls == ["prepare a", "a", "prepare b", "b"] * 5
    assert {name: timing.seconds for name, timing in timings.items()} == {
        "a": (1,) * 3,
        "b": (2,) * 3,
    }


def test_peak_memory_is_that_of_the_work() -> None:
    kept = np.ones(2**22)  # 32 MiB allocated before

    def work() -> float:
        return float(sum(np.ones(2**23).sum() for _ in range(3)) + kept[0])  # 64 MiB at a time

    peak = harness.peak_memory(work)
    if peak is None:
        pytest.skip("the high-water mark of a process cannot be reset here")
    assert 60 < peak < 100


def test_budgets() -> None:
    below = harness.compare("a", 3.0, 2.0, at_most=1.5, extra=1)
    assert (below["ratio"], below["budget"], below["met"], below["extra"]) == (
        1.5,
        "<= 1.5",
        True,
        1,
    )
    assert harness.compare("a", 3.1, 2.0, at_most=1.5)["met"] is False
    above = harness.compare("a", 2.0, 2000.0, at_least=1000)
    assert (above["ratio"], above["budget"], above["met"]) == (1000.0, ">= 1000", True)
    assert harness.compare("a", 2.1, 2000.0, at_least=1000)["met"] is False
    without = harness.compare("a", 3.0, 2.0)
    assert (without["ratio"], without["budget"], without["met"]) == (1.5, None, None)
