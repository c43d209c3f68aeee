"""Timing, peak memory, tables and recorded rows for all benchmarks.

A script has a function ``run(options) -> list[Row]`` and ends with ``main(__doc__, run)``. It compares
*sides*: a side is a function that prepares its inputs without being timed, and returns the work to time.
The sides of a comparison are timed in turn, round after round (a b c a b c ...), so that other load on
the machine affects all of them alike.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tqdm import tqdm

Value = str | float | int | bool | None
Row = dict[str, Value]
Work = Callable[[], object]
Side = Callable[[], Work]

_PACKAGES = ("torch", "gpytorch", "botorch", "numpy", "scikit-learn", "gp_distributions")
_PEERS = ("pot", "ott-jax", "geomloss")
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")
_REPEATS, _SEEDS = 9, 5
_PROJECT = Path(__file__).parents[1]
_FIGURES = Path(__file__).parent / "figures"
_STATUS = Path("/proc/self/status")
_CLEAR_PEAK = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Options:
    """Options of the command line.

    Attributes:
        quick: Whether to run at small sizes, to check that a script works; budgets are for full sizes.
        repeats: Number of times each side is timed.
        seeds: Number of seeds over which accuracies are averaged; 0 is the default of the script, its
            ``SEEDS`` or 5.
        record: Folder where the rows of a script are kept, in a file of its name.
        data_dir: Folder with the image data sets. Default: fetch them from OpenML.
    """

    quick: bool = False
    repeats: int = _REPEATS
    seeds: int = 0
    record: Path | None = None
    data_dir: Path | None = None


@dataclass(frozen=True)
class Timing:
    """Seconds of every repeat of a side, and its peak memory if it can be measured."""

    seconds: tuple[float, ...]
    peak_mib: float | None = None

    @property
    def median(self) -> float:
        """Median over repeats, in seconds."""
        return statistics.median(self.seconds)


def interleave(
    sides: Mapping[str, Side], *, repeats: int, warmup: int = 1, label: str = ""
) -> dict[str, Timing]:
    """Time sides in turn, round after round, then measure the peak memory of each once.

    Args:
        sides: Functions that prepare and return the work to time, by name.
        repeats: Number of timed rounds.
        warmup: Number of untimed rounds before them.
        label: Text of the progress bar.

    Returns:
        The timing of each side, by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    peaks: dict[str, float | None] = {}
    total = (warmup + repeats + 1) * len(sides)
    gc.collect()
    gc.freeze()  # makes each collection below fast
    try:
        with tqdm(total=total, desc=label, leave=False, disable=None) as progress:
            for turn in range(warmup + repeats):
                for name, side in sides.items():
                    elapsed = _seconds(side())
                    if turn >= warmup:
                        seconds[name].append(elapsed)
                    progress.update()
            for name, side in sides.items():
                peaks[name] = peak_memory(side())
                progress.update()
    finally:
        gc.unfreeze()
    return {name: Timing(tuple(seconds[name]), peaks[name]) for name in sides}


def _seconds(work: Work) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        result = work()
        elapsed = time.perf_counter() - start
    finally:
        gc.enable()
    del result  # freeing is not part of the work
    return elapsed


def peak_memory(work: Work) -> float | None:
    """Return the peak memory of ``work`` beyond what was in use before, in MiB.

    It is measured on Linux, where the high-water mark of a process can be reset; elsewhere ``None``.
    """
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # otherwise freed blocks count as in use before
        _CLEAR_PEAK.write_text("5")
        before = _status_mib("VmRSS")
        work()
        return max(0.0, _status_mib("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def _status_mib(field: str) -> float:
    return int(_STATUS.read_text().split(f"{field}:")[1].split()[0]) / 1024


def compare(
    name: str,
    ours: float,
    reference: float,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    **more: Value,
) -> Row:
    """Return one row of a comparison, with its budget if there is one.

    Args:
        name: Description of the work with its sizes.
        ours: Our seconds.
        reference: Seconds of the reference.
        at_most: Budget for ours over reference, which is the ratio by default.
        at_least: Budget for reference over ours, which is then the ratio.
        **more: Further columns.

    Returns:
        The row, with the columns ``name``, ``ours_s``, ``reference_s``, ``ratio``, ``budget`` and
        ``met``.
    """
    ratio, budget, met = ours / reference, None, None
    if at_least is not None:
        ratio = reference / ours
        budget, met = f">= {at_least:g}", ratio >= at_least
    elif at_most is not None:
        budget, met = f"<= {at_most:g}", ratio <= at_most
    return {
        "name": name,
        "ours_s": ours,
        "reference_s": reference,
        "ratio": ratio,
        "budget": budget,
        "met": met,
        **more,
    }


def machine() -> Row:
    """Return the machine, the threads and the versions."""
    return {
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **{name: os.environ.get(name) for name in _VARIABLES},
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        **{peer: _installed(peer) for peer in _PEERS},
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def table(rows: Sequence[Row]) -> str:
    """Format rows as aligned text, with a column for every key in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    left = [all(isinstance(row.get(c), str | None) for row in rows) for c in columns]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in cells
    )


def cell(value: Value) -> str:
    """Format a value as short text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def parse(doc: str | None, arguments: Sequence[str] | None = None) -> Options:
    """Parse the options that all scripts share from the command line."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run at small sizes, as a check")
    parser.add_argument("--repeats", type=int, help="timed rounds (default: 9; quick: 2)")
    parser.add_argument("--seeds", type=int, help="seeds for accuracies (quick: 2)")
    parser.add_argument("--record", type=Path, help="keep the rows in this folder, as NAME.json")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="folder with mnist.npz and fashion_mnist.npz (default: fetch both from OpenML)",
    )
    given = parser.parse_args(arguments)
    repeats = given.repeats or (2 if given.quick else _REPEATS)
    seeds = given.seeds or (2 if given.quick else 0)
    return Options(given.quick, repeats, seeds, given.record, given.data_dir)


def header(options: Options) -> str:
    """Describe the machine, the threads and the versions in one line."""
    lines = [", ".join(f"{key} {value}" for key, value in machine().items() if value is not None)]
    if options.quick:
        lines.append("quick: small sizes; budgets are for full sizes and not judged")
    return "\n".join(lines)


def default_seeds(script: ModuleType) -> int:
    """Return the number of seeds of a script if none is given."""
    return int(getattr(script, "SEEDS", _SEEDS))


def command(name: str, script: ModuleType, options: Options) -> str:
    """Return the command that reproduces the figures of a script, without options of their defaults."""
    words = [f"python -m benchmarks.{name}"]
    if options.quick:
        words.append("--quick")
    if options.repeats != _REPEATS:
        words.append(f"--repeats {options.repeats}")
    if options.seeds not in (0, default_seeds(script)):
        words.append(f"--seeds {options.seeds}")
    if options.data_dir is not None and "--data-dir" in (script.__doc__ or ""):
        words.append("--data-dir FOLDER")  # other data than those of OpenML
    return " ".join(words)


def save_figure(figure: Any, name: str, options: Options) -> None:
    """Save a matplotlib figure for the results, or elsewhere if it is from a quick run."""
    folder = _PROJECT / "build" / "benchmarks" if options.quick else _FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=100)


def execute(
    name: str, doc: str | None, run: Callable[[Options], list[Row]], options: Options
) -> list[Row]:
    """Run a script, print its rows below its question, and record them."""
    script = sys.modules[run.__module__]
    seeds = options.seeds or default_seeds(script)
    start = time.perf_counter()
    rows = run(dataclasses.replace(options, seeds=seeds))
    seconds = time.perf_counter() - start
    if options.quick:  # budgets are for full sizes
        rows = [row | {"met": None} if "met" in row else row for row in rows]
    question = (doc or "").strip().splitlines()[:1]
    print("\n" + "\n".join([f"== {name}: {' '.join(question)}", table(rows)]))
    print(f"({seconds:.0f} s)", flush=True)
    record(name, command(name, script, options), rows, seconds, options)
    return rows


def record(name: str, made_by: str, rows: list[Row], seconds: float, options: Options) -> None:
    """Keep rows with their command and time as ``NAME.json`` in ``options.record``, if given."""
    if options.record is None:
        return
    about = {
        "benchmark": name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_s": round(seconds, 1),
        "command": made_by,
        "quick": options.quick,
        "machine": machine(),
    }
    head = json.dumps(about, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    options.record.mkdir(parents=True, exist_ok=True)
    file = options.record / f"{name}.json"
    new = file.with_suffix(".new")
    new.write_text(f'{head},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    new.replace(file)


def main(
    doc: str | None, run: Callable[[Options], list[Row]], arguments: Sequence[str] | None = None
) -> list[Row]:
    """Run one script from the command line: header, table, recorded rows."""
    options = parse(doc, arguments)
    print(header(options))
    return execute(Path(sys.modules[run.__module__].__file__ or "").stem, doc, run, options)
