"""Run the benchmarks one after the other, record their rows, and write ``benchmarks/RESULTS.md``.

Benchmarks that measure times or memory run alone. Then those that measure accuracy run in parallel, one
per core, the longest first. A benchmark is not run again if the rows recorded for it come from the same
command, so a run that was stopped continues where it was; remove its file to run a benchmark again. Rows
are recorded in ``benchmarks/results`` or in the folder given by ``--record``. If a benchmark fails, the
results keep the figures of its last run. With ``--quick``, no results are written.

    python -m benchmarks [--long] [--quick] [--record FOLDER] [--data-dir FOLDER]
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch
from threadpoolctl import threadpool_limits

from benchmarks import harness, report
from benchmarks.scripts import is_long, runs_alone, scripts


def execute(name: str, options: harness.Options) -> list[harness.Row]:
    """Run one benchmark."""
    return harness.execute(scripts()[name], options)


def one_thread() -> None:
    """Limit a worker process to one thread."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run benchmarks with the same options, and report failures at the end."""
    options = harness.parse(__doc__, arguments)
    if options.record is None and not options.quick:
        options = dataclasses.replace(options, record=report.RECORDS)
    start = time.perf_counter()
    print(harness.header(options))
    runs = {} if options.record is None else report.read(options.record)
    alone: list[str] = []
    together: list[str] = []
    failed: list[str] = []
    for name, script in scripts().items():
        if is_long(script) != options.long and not options.quick:
            continue
        if name in runs and runs[name].command == harness.command(script, options):
            print(f"{name}: recorded before")
        else:
            (alone if options.quick or runs_alone(script) else together).append(name)
    before = {name: run.wall_s for name, run in report.read(report.RECORDS).items()}
    together.sort(key=lambda name: -before.get(name, 0.0))

    def attempt(name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            traceback.print_exc()
            failed.append(name)

    for name in alone:
        attempt(name, partial(execute, name, options))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=one_thread) as pool:
        futures = {name: pool.submit(execute, name, options) for name in together}
        for name, future in futures.items():
            attempt(name, future.result)
    done = len(alone) + len(together) - len(failed)
    print(f"{done} benchmarks in {(time.perf_counter() - start) / 60:.0f} minutes")
    if not options.quick and options.record is not None:
        report.write(options.record)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
