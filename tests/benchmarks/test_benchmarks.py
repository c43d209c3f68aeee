"""Every benchmark runs at small sizes, and the harness times, tabulates and records as it should."""

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from benchmarks import everything, harness, judging, report
from benchmarks.league.tables import search
from benchmarks.papers import machines, support_measure_machines
from benchmarks.prediction import distance_comparison
from benchmarks.scripts import is_long, scripts
from benchmarks.search import recipe_search
from benchmarks.speed import fit_speed
from gp_distributions.bayesopt import DesignSearch
from gp_distributions.fitting import ascent, lbfgs

QUICK = ["--quick", "--repeats", "1", "--seeds", "1"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: spinning threads make small work ten times slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_all_benchmarks_are_found_under_their_own_names() -> None:
    found = scripts()
    assert {"fit_speed", "calibration_ledger", "sinkhorn_toy"} <= found.keys()
    assert "harness" not in found
    assert len(found) == len({script.__name__ for script in found.values()})
    assert set(report.read(report.RECORDS)) <= found.keys()
    assert is_long(recipe_search)
    assert not is_long(fit_speed)


def test_results_are_those_of_the_recorded_rows() -> None:
    for file, text in report.pages(report.RECORDS).items():
        assert file.read_text(encoding="utf-8") == text, "Run `python -m benchmarks.report`."


# What a quick run still takes long for, and what is put in its place.
FEW_STEPS = {"maxiter": 2, "n_burnin": 10}
SMALLER: dict[str, dict[str, Any]] = {
    "blades": {"search": lambda made, *given: search(made.set_params(max_iter=5), *given)},
    "design_search": {"DesignSearch": partial(DesignSearch, raw_samples=16)},
    "distance_comparison": {"DISTANCES": dict(list(distance_comparison.DISTANCES.items())[::4])},
    "large_sparse": {"new_processes": lambda quick: ThreadPoolExecutor(1)},
    "recipe_search": {
        "FUNCTIONS": dict(list(recipe_search.FUNCTIONS.items())[:1]),
        "fit_gpytorch_mll": lambda mll: mll.eval(),
        "optimize_acqf": lambda *given, whole=recipe_search.optimize_acqf, **options: whole(
            *given, **options | {"num_restarts": 1, "raw_samples": 4, "options": FEW_STEPS}
        ),
    },
    "sinkhorn_toy": {"LENGTHSCALES": (1.0, 2.0), "RIDGES": (1e-6,), "THEIRS": {"alpha": [0.1]}},
    "support_measure_machines": {
        "candidates": partial(
            support_measure_machines.candidates, gammas=(0.1, 1.0), degrees=(2, 3)
        ),
        "StratifiedKFold": lambda _: StratifiedKFold(2),
    },
}
NEEDED = {
    "molecules": "qm9pack",
    "large_sparse": "pyarrow",
    "unknown_pose": "geomstats",
}


@pytest.mark.usefixtures("shortest_fits")
@pytest.mark.parametrize("name", scripts())
# A dozen clouds and a step leave hyperparameters open.
@pytest.mark.filterwarnings("ignore::gp_distributions.warnings.UndeterminedWarning")
def test_quick_run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    script = scripts()[name]
    if name == "fit_speed":  # it compares where fits end
        monkeypatch.setattr(ascent, "minimise", lbfgs.minimise)
    # All that the tests have imported stays frozen, as collections would take long.
    monkeypatch.setattr(harness.gc, "unfreeze", lambda: None)
    monkeypatch.setattr(harness, "peak_memory", lambda work: None)  # another round of all work
    monkeypatch.setattr(machines, "PENALTIES", machines.PENALTIES[::5])
    for constant, value in SMALLER.get(name, {}).items():
        monkeypatch.setattr(script, constant, value)
    rows = harness.execute(script, harness.parse(script.__doc__, QUICK))
    assert f"== {name}: " in capsys.readouterr().out
    assert rows
    for row in rows:
        numbers = [v for v in row.values() if isinstance(v, float)]
        assert numbers
        assert all(map(math.isfinite, numbers))
        assert row.get("ours_s", 1) > 0


@pytest.fixture
def two_scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a run of all be one of two benchmarks, the first of which fails; the names of those run."""
    ran = []

    def fails(options: harness.Options) -> list[harness.Row]:
        ran.append("fit_speed")
        raise OSError("no network")

    def passes(options: harness.Options) -> list[harness.Row]:
        ran.append("large_bags")
        return [{"error": 1.0}]

    two = {name: scripts()[name] for name in ("fit_speed", "large_bags")}
    monkeypatch.setattr(everything, "scripts", lambda: two)
    monkeypatch.setattr(two["fit_speed"], "run", fails)
    monkeypatch.setattr(two["large_bags"], "run", passes)
    return ran


def test_quick_runs_are_recorded_apart(two_scripts: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(SystemExit, match="failed: fit_speed"):
        everything.main([*QUICK, "--record", str(folder)])
    assert two_scripts == ["fit_speed", "large_bags"]
    record = json.loads((folder / "large_bags.json").read_text())
    assert record["quick"]
    assert record["machine"]["torch"]
    assert record["rows"] == [{"error": 1.0}]
    assert record["command"] == "python -m benchmarks.speed.large_bags " + " ".join(QUICK)
    assert report.read(folder) == {}
    assert not (tmp_path / "RESULTS.md").exists()


def test_run_of_all_goes_on_after_a_failure_and_continues_there(
    two_scripts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    for _ in range(2):
        with pytest.raises(SystemExit, match="failed: fit_speed"):
            everything.main(["--record", str(folder)])
    assert "no network" in capsys.readouterr().err
    assert two_scripts == ["fit_speed", "large_bags", "fit_speed"]
    assert (
        "Not run: `python -m benchmarks.speed.fit_speed`" in (folder / "fit_speed.md").read_text()
    )
    assert "| error |\n| --- |\n| 1 |" in (folder / "large_bags.md").read_text()
    # Rows of another command do not count.
    with pytest.raises(SystemExit):
        everything.main(["--record", str(folder), "--seeds", "7"])
    assert two_scripts[3:] == ["fit_speed", "large_bags"]


def test_figures_are_kept_only_beside_recorded_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    kept: list[Path] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **options: kept.append(file))
    for record in (None, tmp_path / "results"):
        with harness.drawing("toy", harness.Options(record=record)) as axes:
            axes.plot([0, 1])
    assert kept == [tmp_path / "figures" / "toy.png"]


def test_rows_with_other_keys_are_another_table() -> None:
    rows: list[harness.Row] = [
        {"name": "a", "ours": 1.0, "peer": None},
        {"name": "bb", "ours": 25.0, "peer": None},
        {"task": "c", "error": 0.125},
    ]
    lines = ["name  ours", "a        1", "bb      25", "", "task  error", "c     0.125"]
    assert harness.text(rows).splitlines() == lines


def recorded(folder: Path, benchmark: str, rows: list[harness.Row], **more: object) -> None:
    """Record rows as the harness would."""
    record = {
        "benchmark": benchmark,
        "finished": "2026-01-02T00:00",
        "wall_s": 60.0,
        "command": f"python -m {scripts()[benchmark].__name__}",
        "quick": False,
        "machine": {"torch": "1", "gp_distributions": "1"},
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
    learned = {"name": "airfoils: learned", "r2": 0.8596}
    uniform = {"name": "uniform / fastest primitives", "ratio": 1.504}
    folder = tmp_path / "results"
    recorded(folder, "fit_speed", [fit])
    recorded(folder, "sinkhorn_potentials", [fit], quick=True)
    recorded(folder, "sinkhorn_toy", [learned])
    recorded(folder, "gram_matrices", [uniform])
    report.write(folder)
    everywhere = (tmp_path / "RESULTS.md").read_text()
    speed, papers = ((folder / f"{name}.md").read_text() for name in ("speed", "papers"))

    assert "targets, 1 are met, 2 are missed and " in everywhere
    command = "`python -m benchmarks.speed.fit_speed`"
    assert line_of(speed, "marginal-likelihood fit")[1:5] == ["0.5", "≤ 0.6", "yes", command]
    assert line_of(papers, "airfoils, learned reference")[1:4] == ["0.8596", "≥ 0.86", "NO"]
    assert line_of(papers, "airfoils, learned reference")[-1] == "Unknown."
    gram = scripts()["gram_matrices"].TARGETS[0]
    assert line_of(speed, gram.text)[1:4] == ["1.504", "≤ 1.5", "NO"]
    assert line_of(speed, gram.text)[-1] == gram.reason
    assert everywhere.count(gram.reason) == speed.count(gram.reason) == 1
    # A benchmark that was not run, and one that ran without this row.
    assert line_of(speed, "`fit_reference`, T = 200")[1:4] == ["not run", "≤ 10 s", "-"]
    assert line_of(papers, "airfoils, learned beside fixed")[1:3] == ["not run", "not below fixed"]
    (line,) = (line for line in speed.splitlines() if "](sinkhorn_potentials.md)" in line)
    assert " | - | not run | - |" in line
    page = (folder / "fit_speed.md").read_text()
    assert page.startswith("# What do fits of exact models cost")
    assert f"{command}, 60 s, 2026-01-02, version 1." in page
    page = (folder / "sinkhorn_potentials.md").read_text()
    assert "Not run: `python -m benchmarks.speed.sinkhorn_potentials`." in page


@pytest.mark.parametrize("name", sorted({name for name, _ in report.targets()}))
def test_targets_find_their_rows(name: str) -> None:
    run = report.read(report.RECORDS).get(name)
    if run is None:
        pytest.skip("not run yet")
    for target in scripts()[name].TARGETS:
        figure, met = target.judge(run.rows)  # raises LookupError
        assert figure
        assert isinstance(met, bool)


def test_limits() -> None:
    rows: list[harness.Row] = [{"name": "a", "value": 0.9}, {"name": "b", "value": 0.97}]
    for text, expected in (
        ("<= 0.9 s", ("0.9 s", True)),
        (">= 0.91", ("0.9", False)),
        ("0.9 to 1", ("0.900", True)),
        ("0.95 to 1", ("0.900", False)),
    ):
        assert judging.limit("text", text, "value", name="a").judge(rows) == expected
    near = judging.limit("text", "<= 0.8", "value", error="value", name="a")
    assert near.judge(rows) == ("0.9 ± 0.9", True)
    above = judging.beside("text", "above", "value", ("b", "a"), lambda b, a: b > a)
    assert above.judge(rows) == ("0.970 beside 0.900", True)
    with pytest.raises(LookupError):
        judging.limit("text", "<= 1", "value", name="c").judge(rows)


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
