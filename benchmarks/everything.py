"""Run the benchmarks one after the other, record their rows, and write ``benchmarks/RESULTS.md``.

Timed scripts run alone. Then scripts that measure accuracy run in parallel, one per core. A script is
not run again if the rows recorded for it come from the same command, so a run that was stopped continues
where it was; remove its file to run a script again. Rows are recorded in
``benchmarks/results`` or in the folder given by ``--record``. If a script fails, the results keep the
figures of its last run. With ``--quick``, no results are written.

    python -m benchmarks [--long] [--quick] [--record FOLDER] [--data-dir FOLDER]
"""

from __future__ import annotations

import dataclasses
import importlib
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
from benchmarks.scripts import LONG, SCRIPTS, SIDE_BY_SIDE

Rows = list[harness.Row]


def execute(name: str, options: harness.Options) -> Rows:
    """Run one script."""
    script = importlib.import_module(f"benchmarks.{name}")
    return harness.execute(name, script.__doc__, script.run, options)


def is_recorded(name: str, options: harness.Options) -> bool:
    """Return whether the same command has recorded the rows of a script."""
    run = None if options.record is None else report.read(options.record).get(name)
    script = importlib.import_module(f"benchmarks.{name}")
    return run is not None and run.command == harness.command(name, script, options)


def one_thread() -> None:
    """Limit a worker process to one thread."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def main(arguments: Sequence[str] | None = None) -> dict[str, Rows]:
    """Run scripts with the same options, and report failures at the end."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    long = "--long" in given
    options = harness.parse(__doc__, [word for word in given if word != "--long"])
    if options.record is None and not options.quick:
        options = dataclasses.replace(options, record=report.RECORDS)
    start = time.perf_counter()
    print(harness.header(options))
    names = [name for name in SCRIPTS if (name in LONG) == long or options.quick]
    for name in [name for name in names if is_recorded(name, options)]:
        print(f"{name}: recorded before")
        names.remove(name)
    together = [] if options.quick else [name for name in SIDE_BY_SIDE if name in names]
    found: dict[str, Rows] = {}
    failed = []

    def attempt(name: str, rows_of: Callable[[], Rows]) -> None:
        try:
            found[name] = rows_of()
        except Exception:
            traceback.print_exc()
            failed.append(name)

    for name in names:
        if name not in together:
            attempt(name, partial(execute, name, options))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=one_thread) as pool:
        futures = {name: pool.submit(execute, name, options) for name in together}
        for name, future in futures.items():
            attempt(name, future.result)
    print(f"{len(found)} scripts in {(time.perf_counter() - start) / 60:.0f} minutes")
    if not options.quick and options.record is not None:
        report.write(options.record)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    return {name: found[name] for name in SCRIPTS if name in found}
