"""Attacks on files from a process of their own, and what came of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzzing.files import SUBJECTS

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Report:
    """What came of attacks.

    Attributes:
        outcomes: Number of cases with each outcome, by kind of attack.
        wrong: Cases that went wrong, and how.
        slowest: Seconds of the slowest case, and the case.
    """

    outcomes: Counter[str]
    wrong: list[str]
    slowest: tuple[float, str]


def run(
    *,
    kinds: Sequence[str] = ("damage", "forge"),
    names: Sequence[str] = tuple(SUBJECTS),
    seed: int = 0,
    cases: int = 10,
    seconds: float = 1e9,
) -> Report:
    """Run attacks with the case numbers ``seed`` to ``seed + cases - 1`` on each kind of file."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    # Each thread may reserve an arena of glibc, which would count as memory without being used.
    settings = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    environment = {**os.environ, "PYTHONPATH": path, **settings}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fuzzing.attack", folder, ",".join(kinds), ",".join(names)]
        done = subprocess.run(
            [*command, str(seed), str(cases), str(seconds)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        log = Path(folder, "log.jsonl")
        text = log.read_text() if log.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    slowest = 0.0, ""
    case = "the start"
    for line in lines:
        if "case" in line:
            case = " ".join(map(str, line["case"]))
            continue
        outcomes[f"{case.split()[0]}: {line['outcome'].split(':')[0]}"] += 1
        slowest = max(slowest, (line["seconds"], case))
        if line["outcome"].startswith("WRONG"):
            wrong.append(f"{case}: {line['outcome']}")
    if done.returncode:
        wrong.append(f"{case}: the process ended with {done.returncode}: {done.stderr[-3000:]}")
    return Report(outcomes, wrong, slowest)
