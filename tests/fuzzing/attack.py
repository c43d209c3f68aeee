"""Run attacks on files in a process of limited memory, so that a crash ends the attack alone.

Run by ``fuzzing.attacks`` as ``python -m fuzzing.attack FOLDER KINDS NAMES SEED CASES SECONDS``.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import random
import resource
import sys
import time
import traceback
from pathlib import Path

import torch
from fuzzing.files import SUBJECTS, bits, examined, examined_forgery
from fuzzing.mutations import damaged

# Memory that a case may take beyond that of the libraries, and its longest duration.
MEMORY = 700 * 2**20
SECONDS = 30


def limit_memory() -> None:
    """Let every larger allocation of this process fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def attack(
    folder: Path, kinds: list[str], name: str, seed: int, cases: int, log: Path, until: float
) -> None:
    """Write one file, change it in many ways, and log what becomes of each change."""
    subject = SUBJECTS[name]
    torch.manual_seed(0)
    where = folder / name
    where.mkdir(exist_ok=True)
    path = subject.write(where)
    content = path.read_bytes()
    others = {p: p.read_bytes() for p in where.iterdir() if p != path}
    expected = bits(subject.use(subject.read(path))) if "damage" in kinds else []
    with log.open("a") as file:
        for kind, case in itertools.product(kinds, range(seed, seed + cases)):
            if time.monotonic() > until:
                return
            rng = random.Random(f"{kind}-{name}-{case}")
            print(json.dumps({"case": [kind, name, case]}), file=file, flush=True)
            for other, text in others.items():
                other.write_bytes(text)
            path.write_bytes((damaged if kind == "damage" else subject.forge)(content, rng))
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            started = time.monotonic()
            try:
                if kind == "damage":
                    outcome = examined(subject, path, expected)
                else:
                    outcome = examined_forgery(subject, path)
            except BaseException:
                outcome = f"WRONG: {traceback.format_exc()}"
            faulthandler.cancel_dump_traceback_later()
            seconds = time.monotonic() - started
            print(json.dumps({"outcome": outcome, "seconds": seconds}), file=file, flush=True)


if __name__ == "__main__":
    folder, kinds, names, seed, cases, seconds = sys.argv[1:]
    torch.set_num_threads(1)
    limit_memory()
    until = time.monotonic() + float(seconds)
    for name in names.split(","):
        log = Path(folder, "log.jsonl")
        attack(Path(folder), kinds.split(","), name, int(seed), int(cases), log, until)
