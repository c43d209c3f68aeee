"""Measure sets of the league, and write its page: ``python -m benchmarks.league SET ...``."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import torch
from threadpoolctl import threadpool_limits

from benchmarks import harness, report
from benchmarks.league import standings
from benchmarks.league.measuring import (
    FOLDS,
    LINES,
    METHODS,
    OURS,
    PEERS,
    REPETITIONS,
    kept,
    measure,
)
from benchmarks.league.sets import DEVELOPMENT, ONCE


def main() -> None:
    """Measure, assemble and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("sets", nargs="*", default=list(DEVELOPMENT), help=f"of {[*DEVELOPMENT, *ONCE]}")
    add("--repetitions", type=int, default=REPETITIONS, help="of development sets up to 300 bags")
    add("--folds", type=int, default=FOLDS, help="how many of the five folds to measure")
    add("--methods", nargs="*", default=[*OURS, *PEERS], choices=METHODS, help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for name in options.sets:
            load = {**DEVELOPMENT, **ONCE}[name]
            repetitions = 1 if name in ONCE else options.repetitions
            more = {"repetitions": repetitions, "most": options.folds}
            measure(name, load, LINES, methods=options.methods, **more)
    lines = kept(LINES)
    rows = standings.report(lines, harness.Options(record=report.RECORDS))
    about = {
        "benchmark": "standings",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_s": round(sum(x["scores"]["seconds"] for x in lines if "version" in x), 1),  # of ours
        "command": "python -m benchmarks.league",
        "quick": False,
        "machine": harness.machine(),
    }
    harness.record(report.RECORDS / "standings.json", about, rows)
    report.write()


if __name__ == "__main__":
    main()
