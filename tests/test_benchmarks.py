"""Every benchmark runs at small sizes, and the harness times, tabulates and records what it is given."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from benchmarks import __main__ as everything
from benchmarks import (
    airfoil_search,
    digits_machines,
    distance_comparison,
    fit_speed,
    harness,
    image_classification,
    mmd_gram,
    reference_learning,
    sampling_noise,
    sinkhorn_potentials,
    slice_accuracy,
    sliced_wasserstein_gram,
    t_batch_speed,
)

TIMED = [sliced_wasserstein_gram, fit_speed, t_batch_speed, sinkhorn_potentials]
SCRIPTS = [
    slice_accuracy,
    *TIMED,
    reference_learning,
    mmd_gram,
    distance_comparison,
    digits_machines,
    image_classification,
    sampling_noise,
    airfoil_search,
]
MODULES = {"__init__", "__main__", "harness", "image_protocol"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that spin for each other make small work ten times as long on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_all_benchmarks_are_run_and_tested() -> None:
    files = {path.stem for path in Path(harness.__file__).parent.glob("*.py")}
    scripts = files - MODULES
    assert set(everything.SCRIPTS) == scripts
    assert {script.__name__.rpartition(".")[2] for script in SCRIPTS} == scripts


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_quick_run(script: ModuleType) -> None:
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
    # A round to warm up, three that are timed, one for memory.
    assert calls == ["prepare a", "a", "prepare b", "b"] * 5
    assert {name: timing.seconds for name, timing in timings.items()} == {
        "a": (1,) * 3,
        "b": (2,) * 3,
    }


def test_median_of_repeats() -> None:
    assert harness.Timing((5.0, 1.0, 2.0)).median == 2.0


def test_peak_memory_is_that_of_the_work() -> None:
    kept = np.ones(2**22)  # 32 MiB that were there before

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
    given = harness.parse("", ["--quick", "--repeats", "7", "--seeds", "3", "--json", "a"])
    assert given == harness.Options(quick=True, repeats=7, seeds=3, json=Path("a"))
