"""Every benchmark runs at small sizes, and the harness times, tabulates and records as it should."""

import ast
import dataclasses
import json
import math
import re
import runpy
from collections.abc import Iterator
from functools import partial
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from benchmarks import (
    acquisition_speed,
    airfoil_regression,
    airfoil_search,
    cells,
    comparison,
    digits_machines,
    distance_comparison,
    entropy_regression,
    everything,
    fit_speed,
    harness,
    image_classification,
    image_embeddings,
    large_bags,
    large_exact,
    large_sparse,
    learning_curves,
    mixed,
    mixed_search,
    mmd_gram,
    mode_counting,
    molecules,
    patients,
    reference_learning,
    reference_speed,
    report,
    rigid_speed,
    sampling_noise,
    scaled_distance,
    scaling,
    sinkhorn_potentials,
    slice_accuracy,
    sliced_wasserstein_gram,
    support_measure_machines,
    t_batch_speed,
    targets,
    turned_airfoil_search,
    unknown_pose,
)

TIMED = [sliced_wasserstein_gram, fit_speed, rigid_speed, t_batch_speed, sinkhorn_potentials]
SCRIPTS = [
    acquisition_speed,
    slice_accuracy,
    *TIMED,
    large_exact,
    large_bags,
    large_sparse,
    reference_speed,
    reference_learning,
    mmd_gram,
    distance_comparison,
    comparison,
    airfoil_regression,
    unknown_pose,
    mixed,
    patients,
    molecules,
    cells,
    scaled_distance,
    digits_machines,
    image_classification,
    sampling_noise,
    airfoil_search,
    turned_airfoil_search,
    mixed_search,
    mode_counting,
    entropy_regression,
    learning_curves,
    support_measure_machines,
    image_embeddings,
    scaling,
]
MODULES = {
    "__init__",
    "__main__",
    "everything",
    "harness",
    "image_protocol",
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
    scripts = files - MODULES
    assert set(everything.SCRIPTS) == scripts
    assert {script.__name__.rpartition(".")[2] for script in SCRIPTS} == scripts


def test_modules_import_each_other_in_one_direction() -> None:
    paths = {path.stem: path for path in Path(harness.__file__).parent.glob("*.py")}
    imports: dict[str, set[str]] = {}
    for name, path in paths.items():
        found = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
        imported = {f"{node.module}.{alias.name}" for node in found for alias in node.names}
        parts = {
            part for full in imported if full.startswith("benchmarks.") for part in full.split(".")
        }
        imports[name] = parts & paths.keys()
    assert imports["report"] >= {"harness", "scripts", "targets"}
    TopologicalSorter(imports).prepare()  # raises CycleError


def test_readme_has_the_question_of_every_benchmark() -> None:
    readme = (Path(harness.__file__).parent / "README.md").read_text()
    for script in SCRIPTS:
        name = script.__name__.rpartition(".")[2]
        question = (script.__doc__ or "").splitlines()[0].replace("SW2^2", "SW2²")
        assert f"| [{name}]({name}.py) | {question} |" in readme


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_quick_run(script: ModuleType) -> None:
    if script is molecules and find_spec("qm9pack") is None:
        pytest.skip("qm9pack is not installed")
    if script is large_sparse and find_spec("pyarrow") is None:
        pytest.skip("PyArrow is not installed")
    if script is cells and find_spec("geomstats") is None:
        pytest.skip("geomstats is not installed")
    rows = script.run(harness.Options(quick=True, repeats=1, seeds=1))
    assert rows
    for row in rows:
        numbers = [v for v in row.values() if isinstance(v, float)]
        assert numbers
        assert all(map(math.isfinite, numbers))
        if script in TIMED:
            assert row["ours_s"] > 0


def test_run_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("slice_accuracy", "sinkhorn_potentials")
    monkeypatch.setattr(everything, "SCRIPTS", names)
    file = tmp_path / "new" / "rows.jsonl"
    arguments = ["--quick", "--repeats", "1", "--seeds", "1", "--json", str(file)]
    results = everything.main(arguments)
    printed = capsys.readouterr().out
    assert tuple(results) == names
    assert all(f"== {name}: " in printed for name in names)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(records) == sum(map(len, results.values()))
    assert all(record["quick"] and record["machine"]["torch"] for record in records)
    rows = [row for name in names for row in results[name]]
    assert [record["row"] for record in records] == rows
    assert all(record["wall_s"] > 0 for record in records)
    assert (
        records[0]["command"] == "python -m benchmarks.slice_accuracy --quick --repeats 1 --seeds 1"
    )


def test_scripts_of_accuracy_run_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("learning_curves", "digits_machines")
    file = tmp_path / "rows.jsonl"
    quick = harness.Options(quick=True, repeats=1, seeds=1, json=file)
    monkeypatch.setattr(everything, "SCRIPTS", names)
    monkeypatch.setattr(everything, "SIDE_BY_SIDE", names[::-1])
    monkeypatch.setattr(harness, "parse", lambda *_: dataclasses.replace(quick, quick=False))
    monkeypatch.setattr(everything, "execute", partial(_with, quick))
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    runpy.run_module("benchmarks", run_name="__main__")
    written = [json.loads(line)["benchmark"] for line in file.read_text().splitlines()]
    assert set(written) == {*names, report.ALL}
    text = (tmp_path / "RESULTS.md").read_text()
    assert re.search(r"`make benchmarks` took \d+ minutes\.", text)


def _with(options: harness.Options, name: str, _: harness.Options) -> list[harness.Row]:
    """Run in another process, which imports its own modules."""
    return everything.execute(name, options)


def test_run_of_all_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(options: harness.Options) -> list[harness.Row]:
        raise OSError("no network")

    monkeypatch.setattr(everything, "SCRIPTS", ("fit_speed", "slice_accuracy"))
    monkeypatch.setattr(fit_speed, "run", fails)
    monkeypatch.setattr(slice_accuracy, "run", lambda options: [{"error": 1.0}])
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    with pytest.raises(SystemExit, match="failed: fit_speed"):
        everything.main(["--json", str(tmp_path / "rows.jsonl")])
    assert "no network" in capsys.readouterr().err
    text = (tmp_path / "RESULTS.md").read_text()
    assert "Not run: `python -m benchmarks.fit_speed`." in text
    assert "| error |\n| --- |\n| 1 |" in text


def recorded(
    benchmark: str, rows: list[harness.Row], finished: str = "2026-01-02T00:00", **more: object
) -> str:
    """Return rows as lines that the harness would write."""
    record = {
        "benchmark": benchmark,
        "finished": finished,
        "wall_s": 60.0,
        "command": f"python -m benchmarks.{benchmark}",
        "quick": False,
        "machine": {"torch": "1"},
    }
    return "".join(json.dumps(record | more | {"row": row}) + "\n" for row in rows)


def line_of(text: str, start: str) -> list[str]:
    """Return the cells of the only table row with this beginning."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_report_says_what_is_met_what_is_not_and_what_was_not_run(tmp_path: Path) -> None:
    fit = {"name": "fit / fit on precomputed distances, T=500 n=100 d=2", "ratio": 1.5}
    toy = {"name": "toy d=4 normal: learned", "evs": 0.9969, "coverage": 0.95}
    uniform = {"name": "uniform / fastest primitives", "ratio": 1.504}
    image: harness.Row = {"name": "MNIST 15", "edges": 0.94, "gp": 0.9, "best": "gp"}
    pool: harness.Row = {"name": "pool, seeds 1000-1009: ours", "best_found": "9 of 10"}
    noise: list[harness.Row] = [
        {
            "name": "toy A, trained on 5, 10, 30, 100",
            "coverage": value,
            "reach": "coverage .92 to .97",
            "met": value > 0.92,
        }
        for value in (0.93, 0.91)
    ]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first.write_text(
        recorded("fit_speed", [fit | {"ratio": 3.0}], "2026-01-03T00:00")
        + recorded("reference_learning", [toy])
        + recorded("sliced_wasserstein_gram", [uniform])
        + recorded("image_classification", [image], command="python -m x --data-dir FOLDER")
        + recorded("airfoil_search", [pool])
        + recorded("sampling_noise", noise)
    )
    second.write_text(
        recorded("fit_speed", [fit], "2026-01-04T00:00")
        + recorded("fit_speed", [fit | {"ratio": 4.0}], "2026-01-05T00:00", quick=True)
        + recorded("reference_learning", [toy | {"evs": 1.0}], "2026-01-01T00:00")
    )
    output = tmp_path / "RESULTS.md"
    report.main([str(first), str(second), "--output", str(output)])
    text = output.read_text()

    assert "targets, 1 are met, 5 are missed and " in text
    command = "`python -m benchmarks.fit_speed`"
    # The latest full run counts, in any order of files.
    assert line_of(text, "marginal-likelihood fit")[1:] == ["1.5", "≤ 2", "yes", command, "-"]
    assert line_of(text, "Sinkhorn toy, d = 4")[1:4] == ["0.9969", "≥ 0.997", "NO"]
    assert line_of(text, "Sinkhorn toy, d = 4")[-1] == "Unknown."
    reason = targets.REASONS[targets.BUDGETS[0].text]
    assert line_of(text, targets.BUDGETS[0].text)[1:4] == ["1.504", "≤ 1.5", "NO"]
    assert line_of(text, targets.BUDGETS[0].text)[-1] == reason
    assert text.count(reason) == 1
    # Validation selects the Gaussian process, although the other has the better test accuracy.
    assert line_of(text, "MNIST, 15 degrees")[1:5] == [
        "0.900",
        "≥ 0.93",
        "NO",
        "`python -m x --data-dir FOLDER`",
    ]
    assert line_of(text, "pool search, 10 + 40 evaluations")[1:4] == ["9 of 10", "10 of 10", "NO"]
    assert line_of(text, "sampling noise, toy A, trained on mixed sizes: cov")[1:4] == [
        "0.930 0.910",
        ".92 to .97",
        "NO",
    ]
    # A script that was not run, and one that ran without this row.
    assert line_of(text, "exact MMD Gram matrix, T = 500")[1:4] == ["not run", "≤ 1", "-"]
    assert line_of(text, "Sinkhorn toy, d = 6")[1:4] == ["not run", "≥ 0.95", "-"]
    assert "\n## [fit_speed](fit_speed.py)\n\nDoes a marginal-likelihood fit" in text
    assert f"{command}, 60 s, 2026-01-04." in text
    assert "Not run: `python -m benchmarks.mmd_gram`." in text


def test_report_has_every_budget_and_every_figure_to_reach() -> None:
    text = report.results({}, everything.SCRIPTS)
    lines = [*targets.BUDGETS, *targets.REACH]
    assert len({line.text for line in lines}) == len(lines)
    assert {line.script for line in lines} <= set(everything.SCRIPTS)
    assert set(targets.REASONS) <= {line.text for line in lines}
    for line in lines:
        assert line_of(text, f"{line.text} |")[1] == "not run"
    scripts = [line.script for line in targets.BUDGETS]
    assert {name: scripts.count(name) for name in scripts} == {
        "sliced_wasserstein_gram": 4,
        "sinkhorn_potentials": 2,
        "mmd_gram": 2,
        "fit_speed": 1,
        "large_exact": 2,
        "rigid_speed": 2,
        "t_batch_speed": 2,
        "reference_speed": 4,
    }
    scripts = [line.script for line in targets.REACH]
    assert {name: scripts.count(name) for name in scripts} == {
        "mode_counting": 4,
        "image_classification": 6,
        "molecules": 3,
        "patients": 4,
        "comparison": 4,
        "mixed_search": 2,
        "large_sparse": 5,
        "reference_learning": 11,
        "support_measure_machines": 2,
        "airfoil_search": 4,
        "turned_airfoil_search": 1,
        "cells": 2,
        "sampling_noise": 12,
    }


def test_report_finds_the_rows_of_the_scripts() -> None:
    rows = reference_speed.memory(harness.Options(quick=True, repeats=1))
    (line,) = (line for line in targets.BUDGETS if line.text.startswith("gradient"))
    assert line.judge(rows)[0].startswith("1 x kept, peak ")
    grown = [row | {"saved_mib": float(i)} for i, row in enumerate(rows, start=1)]
    assert not line.judge(grown)[1]
    tasks = {str(task) for task in mode_counting.TASKS}
    kernels = {"linear", "gaussian"}
    made_up: dict[str, list[harness.Row]] = {
        "mode_counting": [{"task": task, "rounded": 0.0} for task in tasks],
        "support_measure_machines": [
            {"embedding": kernel, "kernel": kernel, "accuracy": 100.0} for kernel in kernels
        ],
        "image_classification": [
            {"name": f"{name} {degrees or 'raw'}", "best": "gp", "gp": 1.0}
            for name, degrees, _ in image_classification.TASKS
        ],
        "molecules": [
            {"name": "load", "seconds": 20.0},
            *(
                {"name": f"{name}, {size}", "mae": 4.4, "coverage": 0.95, "seconds": 700.0}
                for name, size, _ in molecules.methods(molecules.Sizes(), quick=True)
            ),
        ],
        "large_sparse": [
            *(
                {
                    "name": f"Parquet, {size}, single precision",
                    "ratio": 3.9,
                    "peak_mib": 2000.0,
                    "rmse": 1 / size,
                }
                for size in large_sparse.Sizes().sharded
            ),
            {"name": "sparse, 50000", "nlpd": 0.5},
            {"name": "SVGP, 50000", "nlpd": 0.6},
            {"name": "BayesianRidge, 20000", "nlpd": 0.7},
        ],
        "mmd_gram": [
            {"name": f"gaussian, uniform / bare exp, {case}", "ratio": 0.5, "ours_mib": 1.0}
            for case in (mmd_gram.Case(), mmd_gram.Case(clouds=2000, atoms=200))
        ],
        "airfoil_search": [
            {"name": name, "value": 1.0, "value_std": 0.0, **dict.fromkeys(found, "10 of 10")}
            for name in (
                f"pool, seeds {airfoil_search.FROZEN_SEEDS}-{airfoil_search.FROZEN_SEEDS + 9}: ours",
                "designs, seeds 0-9: ours",
                "designs, seeds 0-9: GP on designs",
                "designs, seeds 0-9: GP on designs with priors",
            )
            for found in [("best_found", "top_1pct_by_20")]
        ],
    }
    rows = comparison.run(harness.Options(quick=True, repeats=1, seeds=1))
    made_up["comparison"] = [
        rows[-1] | {"never_below": 10, "above_best": 5, "above_default": 8, "spearman": 0.7}
    ]
    made_up["cells"] = [
        {"name": name, "line": value, "treatment": value}
        for name, value in (("SW2", 0.7), ("principal axes", 0.75), ("chosen", 0.8))
    ]
    made_up["turned_airfoil_search"] = [
        {"name": "turned, seeds 3000-3009: rigid", "best_found": "8 of 10"}
    ]
    for line in (*targets.BUDGETS, *targets.REACH):
        if line.script in made_up:
            assert line.judge(made_up[line.script])[1]


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


def test_figures_of_small_sizes_do_not_replace_those_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Figure:
        def savefig(self, file: Path, dpi: int) -> None:
            file.touch()

    monkeypatch.setattr(harness, "_FIGURES", tmp_path / "figures")
    harness.save_figure(Figure(), "a", harness.Options(quick=True))
    assert not (tmp_path / "figures").exists()
    harness.save_figure(Figure(), "a", harness.Options())
    assert (tmp_path / "figures" / "a.png").exists()


def test_remeshed_outlines_lie_on_the_outline() -> None:
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    counts, ratios = [], []
    for seed in range(20):
        mesh = airfoil_regression.remeshed(circle, np.random.default_rng(seed))
        assert np.abs(np.linalg.norm(mesh, axis=1) - 1).max() < 1e-4
        gaps = np.linalg.norm(mesh - np.roll(mesh, 1, axis=0), axis=1)
        assert gaps.sum() < 2 * np.pi
        assert gaps.sum() > 6.1
        counts.append(len(mesh))
        ratios.append(gaps.max() / gaps.min())
    assert min(counts) >= 30
    assert max(counts) <= 200
    assert min(counts) < 60 < 150 < max(counts)
    assert np.median(ratios) > 2


def test_time_in_compiled_functions_counts_for_who_calls_them() -> None:
    rows = torch.rand(300, 12, dtype=torch.float64)
    distance = scaling.SlicedWasserstein(2)
    found = scaling.profile("a", lambda: distance.squared(rows))
    layers = {row["layer"]: row["share"] for row in found}
    assert {"numerics", "distances"} & set(layers)
    assert None not in layers
    assert sum(float(str(share)) for share in layers.values()) == pytest.approx(1, abs=0.2)


def test_main_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    rows = harness.main(fit_speed.__doc__, fit_speed.run, ["--quick", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert printed.startswith("processor ")
    assert "== fit_speed: Does a marginal-likelihood fit cost more" in printed
    assert str(rows[0]["name"]) in printed


def test_slices_are_ranked_as_the_design_says() -> None:
    errors = slice_accuracy.errors(3, seed=0, number=50)
    ranked = ["ours", "Fibonacci + exact mean", "orthogonal + exact mean", "iid"]
    assert sorted(set(errors) - {"reference"}, key=errors.__getitem__) == ranked
    assert errors["reference"] < 0.3 * errors["ours"]


def test_fits_that_differ_are_refused() -> None:
    rows, targets = fit_speed.data(20, 10)
    model = fit_speed.ours(rows, targets)
    squared = model.covar_module.base_kernel.distance.squared(rows)
    other = fit_speed.precomputed(2 * squared, targets, model.likelihood)
    with pytest.raises(RuntimeError, match="did not do the same work"):
        fit_speed.check_equal_work(model, other)


def test_precomputed_kernel_looks_up_any_numbers() -> None:
    squared = torch.rand(6, 6, dtype=torch.float64)
    kernel = fit_speed.PrecomputedKernel(squared).double()
    kernel.lengthscale = torch.tensor(0.5, dtype=torch.float64)
    expected = torch.exp(-2 * squared)
    i, j = torch.tensor([[4.0], [1.0]]), torch.tensor([[0.0], [5.0], [2.0]])
    torch.testing.assert_close(kernel.forward(i, j), expected[[4, 1]][:, [0, 5, 2]])
    torch.testing.assert_close(kernel.forward(i, j[:2], diag=True), expected[[4, 1], [0, 5]])


def test_posteriors_that_differ_are_refused() -> None:
    found = t_batch_speed.predictors(4, 10)
    found["wrong"] = lambda rows: (found["ours"](rows)[0], 1.01 * found["ours"](rows)[1])
    rows = t_batch_speed.clouds(2, 1, atoms=10, seed=1).pack()
    with pytest.raises(RuntimeError, match="posteriors differ"):
        t_batch_speed.check_agreement(found, rows)


def test_ragged_clouds_have_the_size_asked_for_on_average() -> None:
    case = sliced_wasserstein_gram.Case(clouds=500)
    clouds = sliced_wasserstein_gram.ragged(case)
    sizes = clouds.sizes.double()
    assert (sizes.min(), sizes.max()) == (20, 180)
    assert abs(sizes.mean() - case.atoms) < 10


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


def test_median_of_repeats() -> None:
    assert harness.Timing((5.0, 1.0, 2.0)).median == 2.0


def test_peak_memory_is_that_of_the_work() -> None:
    kept = np.ones(2**22)  # 32 MiB allocated before

    def work() -> float:
        return float(sum(np.ones(2**23).sum() for _ in range(3)) + kept[0])  # 64 MiB at a time

    peak = harness.peak_memory(work)
    if peak is None:
        pytest.skip("the high-water mark of a process cannot be reset here")
    assert 60 < peak < 100


def test_no_peak_memory_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harness, "_STATUS", tmp_path / "missing")
    assert harness.peak_memory(lambda: None) is None


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


def test_table_is_aligned() -> None:
    rows: list[harness.Row] = [
        {"name": "one", "ratio": 1.23456, "met": True},
        {"name": "three", "ratio": 12345.6, "met": False, "more": None},
    ]
    assert harness.table(rows).splitlines() == [
        "name   ratio  met  more",
        "one     1.23  yes  -",
        "three  12346   NO  -",
    ]


def test_options() -> None:
    assert harness.parse("", []) == harness.Options()
    assert harness.parse("", ["--quick"]) == harness.Options(quick=True, repeats=2, seeds=2)
    words = ["--quick", "--repeats", "7", "--seeds", "3", "--json", "a", "--data-dir", "b"]
    given = harness.parse("", words)
    expected = harness.Options(quick=True, repeats=7, seeds=3, json=Path("a"), data_dir=Path("b"))
    assert given == expected
