r"""Do the grids of appendix F explain the published errors of counting modes?

The twelve tasks, the bags and the ridge regression are those of ``mode_counting``, whose grids are those
of the authors' code. Appendix F of Meunier, Pontil and Ciliberto 2022 prints other grids for both of its
experiments, of which a superscript is in doubt (``grids``).

A row has a kernel on a task, with errors: ``paper`` as published, ``one`` with "100" read as
:math:`10^0`, ``hundred`` with one hundred, means over seeds.

Neither reading explains the errors of MMD, which with two classes are .1 to .3 lower here. Those of SW2
and SW1 hardly depend on the grids.

    python -m benchmarks.papers.mode_counting_grids [--quick] [--seeds 3]
"""

from __future__ import annotations

from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.papers.grids import PRINTED
from benchmarks.papers.mode_counting import QUICK, TASKS, Task, bags, ridge_errors, sliced_squared

SEEDS = 3


def score(task: Task, seed: int) -> dict[str, float]:
    """Errors of one seed by kernel and reading."""
    rows, numbers = bags(task, seed)
    squared = sliced_squared(rows, task.dim)
    return {
        f"{kernel}, {reading}": error
        for reading, grids in PRINTED.items()
        for kernel, error in ridge_errors(rows, squared, task, numbers, grids).items()
    }


def run(options: Options) -> list[Row]:
    """Return one row per task and kernel."""
    rows: list[Row] = []
    for task in QUICK if options.quick else TASKS:
        seeds = progress(range(options.seeds), str(task))
        found = means([score(task, seed) for seed in seeds])
        for kernel, published in zip(("mmd", "sw2", "sw1"), task.published, strict=True):
            row: Row = {"task": str(task), "kernel": kernel, "paper": published}
            rows.append(row | {reading: found[f"{kernel}, {reading}"] for reading in PRINTED})
    return rows


if __name__ == "__main__":
    main(run)
