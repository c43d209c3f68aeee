"""Run all benchmarks and write ``benchmarks/RESULTS.md``.

Timed scripts run alone, one after the other. Then scripts that measure accuracy run in parallel,
one per core. Rows are appended to ``benchmarks/results/rows.jsonl`` or to the file given by
``--json``. The results are written from that file, so if a script fails, they keep the figures of
its last run. With ``--quick``, no results are written.

    python -m benchmarks [--quick] [--json FILE] [--data-dir FOLDER]
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
from benchmarks.scripts import SCRIPTS, SIDE_BY_SIDE

Rows = list[harness.Row]


def execute(name: str, options: harness.Options) -> Rows:
    """Run one script."""
    script = importlib.import_module(f"benchmarks.{name}")
    return harness.execute(name, script.__doc__, script.run, options)


def one_thread() -> None:
    """Limit a worker process to one thread."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def main(arguments: Sequence[str] | None = None) -> dict[str, Rows]:
    """Run all scripts with the same options, and report failures at the end."""
    options = harness.parse(__doc__, arguments)
    file = options.json or report.FOLDER / "results" / "rows.jsonl"
    options = dataclasses.replace(options, json=file)
    start = time.perf_counter()
    print(harness.header(options))
    together = () if options.quick else tuple(n for n in SIDE_BY_SIDE if n in SCRIPTS)
    found: dict[str, Rows] = {}
    failed = []

    def attempt(name: str, rows_of: Callable[[], Rows]) -> None:
        try:
            found[name] = rows_of()
        except Exception:
            traceback.print_exc()
            failed.append(name)

    for name in SCRIPTS:
        if name not in together:
            attempt(name, partial(execute, name, options))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=one_thread) as pool:
        futures = {name: pool.submit(execute, name, options) for name in together}
        for name, future in futures.items():
            attempt(name, future.result)
    results = {name: found[name] for name in SCRIPTS if name in found}
    if not (failed or options.quick):
        seconds = time.perf_counter() - start
        harness.record(report.ALL, "make benchmarks", [{"scripts": len(results)}], seconds, options)
    if not options.quick:
        report.RESULTS.write_text(report.results(report.read([file]), SCRIPTS))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    return results
