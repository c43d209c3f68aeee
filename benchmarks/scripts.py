"""All benchmarks: the files with a function ``run`` in the folders of subjects."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent
# The subjects, in the order of the report. Benchmarks of speed run alone.
SUBJECTS = ("league", "speed", "numerics", "prediction", "calibration", "search", "papers")


@cache
def scripts() -> dict[str, ModuleType]:
    """Return all benchmarks by name, in the order of the report."""
    names = [
        f"benchmarks.{subject}.{file.stem}"
        for subject in SUBJECTS
        for file in sorted((FOLDER / subject).glob("[a-z]*.py"))
    ]
    modules = map(importlib.import_module, names)
    return {m.__name__.rpartition(".")[2]: m for m in modules if hasattr(m, "run")}


def subject(script: ModuleType) -> str:
    """Return the subject of a benchmark."""
    return script.__name__.split(".")[1]


def is_long(script: ModuleType) -> bool:
    """Return whether a benchmark takes too long for a run of all."""
    return getattr(script, "LONG", False)


def runs_alone(script: ModuleType) -> bool:
    """Return whether a benchmark measures times or memory, so that nothing may run beside it."""
    return subject(script) == "speed" or getattr(script, "ALONE", False)
