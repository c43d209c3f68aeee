"""Timing, peak memory, means over seeds, figures, tables and recorded rows for all benchmarks.

A benchmark is a module with a function ``run(options) -> list[Row]`` that ends with ``main(run)``. It
may say how many ``SEEDS`` it has by default, that it is ``LONG``, that it must run ``ALONE``, and what
its ``TARGETS`` are (:mod:`benchmarks.judging`).

Timed benchmarks compare *sides*: a side is a function that prepares its inputs without being timed, and
returns the work to time. The sides of a comparison are timed in turn, round after round (a b c a b c
...), so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from tqdm import tqdm

Value = str | float | int | bool | None
Row = dict[str, Value]
Work = Callable[[], object]
Side = Callable[[], Work]
Item = TypeVar("Item")

_PACKAGES = ("torch", "gpytorch", "botorch", "numpy", "scikit-learn", "gp_distributions")
_PEERS = ("pot", "ott-jax")
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY")
_REPEATS, _SEEDS = 9, 5
_STATUS = Path("/proc/self/status")
_CLEAR_PEAK = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Options:
    """Options of the command line.

    Attributes:
        quick: Whether to run at small sizes, to check that a benchmark works.
        long: Whether a run of all is one of the benchmarks that take hours.
        repeats: Number of times each side is timed.
        seeds: Number of seeds over which accuracies are averaged; 0 is the default of the script, its
            ``SEEDS`` or 5.
        record: Folder where the rows of a script are kept, in a file of its name; its figures are kept
            in ``figures`` beside this folder. By default, nothing is kept.
        data_dir: Folder with the image data sets. Default: fetch them from OpenML.
    """

    quick: bool = False
    long: bool = False
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
        with tqdm(total=total, desc=label, leave=False, disable=None) as shown:
            for turn in range(warmup + repeats):
                for name, side in sides.items():
                    elapsed = _seconds(side())
                    if turn >= warmup:
                        seconds[name].append(elapsed)
                    shown.update()
            for name, side in sides.items():
                peaks[name] = peak_memory(side())
                shown.update()
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
    ours: float | Timing,
    reference: float | Timing,
    *,
    inverse: bool = False,
    **more: Value,
) -> Row:
    """Return one row of a comparison.

    Args:
        name: Description of the work with its sizes.
        ours: Our seconds, or our timing, whose peak memory is then a column.
        reference: The same of the reference.
        inverse: Whether the ratio is reference over ours, and not ours over reference.
        **more: Further columns.
    """
    sides = {"ours": ours, "reference": reference}
    seconds = {
        f"{name}_s": side.median if isinstance(side, Timing) else side
        for name, side in sides.items()
    }
    peaks = {
        f"{name}_mib": side.peak_mib for name, side in sides.items() if isinstance(side, Timing)
    }
    ratio = seconds["ours_s"] / seconds["reference_s"]
    return {"name": name, **seconds, "ratio": 1 / ratio if inverse else ratio, **peaks, **more}


def means(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of all columns."""
    return {key: statistics.fmean(one[key] for one in results) for key in results[0]}


def progress(items: Iterable[Item], label: str = "") -> Iterator[Item]:
    """Show a progress bar while iterating."""
    yield from tqdm(items, desc=label, leave=False, disable=None)


@contextmanager
def drawing(name: str, options: Options, columns: int = 1, **more: Any) -> Iterator[Any]:
    """Yield the axes of a figure, which is kept in ``figures`` beside the folder of recorded rows."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, columns, layout="constrained", **more)
    yield axes
    if options.record is not None:
        folder = options.record.parent / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{name}.png", dpi=100)
    plt.close(figure)


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


def tables(rows: Sequence[Row]) -> list[tuple[list[str], list[Row]]]:
    """Split rows wherever their keys change, and name the columns of each part that have values."""
    parts = [list(group) for _, group in itertools.groupby(rows, key=tuple)]
    return [
        ([c for c in some[0] if any(row[c] is not None for row in some)], some) for some in parts
    ]


def text(rows: Sequence[Row]) -> str:
    """Format rows as tables of aligned text."""
    return "\n\n".join(_aligned(*part) for part in tables(rows))


def _aligned(columns: Sequence[str], rows: Sequence[Row]) -> str:
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
    """Parse the options that all benchmarks share from the command line."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="run at small sizes, as a check")
    add("--long", action="store_true", help="of all benchmarks, run those that take hours")
    add("--repeats", type=int, default=0, help="timed rounds (default: 9; quick: 2)")
    add("--seeds", type=int, default=0, help="seeds for accuracies (quick: 2)")
    add("--record", type=Path, help="keep rows in this folder, figures in figures beside it")
    add("--data-dir", type=Path, help="folder with mnist.npz and fashion_mnist.npz, not OpenML")
    found = Options(**vars(parser.parse_args(arguments)))
    repeats = found.repeats or (2 if found.quick else _REPEATS)
    return replace(found, repeats=repeats, seeds=found.seeds or 2 * found.quick)


def header(options: Options) -> str:
    """Describe the machine, the threads and the versions in one line."""
    line = ", ".join(f"{key} {value}" for key, value in machine().items() if value is not None)
    return line + ("\nquick: small sizes; targets are for full sizes" if options.quick else "")


def command(script: ModuleType, options: Options) -> str:
    """Return the command that reproduces the figures of a benchmark, without default options."""
    words = [f"python -m {named(script)}"]
    if options.quick:
        words.append("--quick")
    if options.repeats != _REPEATS:
        words.append(f"--repeats {options.repeats}")
    if options.seeds not in (0, getattr(script, "SEEDS", _SEEDS)):
        words.append(f"--seeds {options.seeds}")
    if options.data_dir is not None and "--data-dir" in (script.__doc__ or ""):
        words.append("--data-dir FOLDER")  # other data than those of OpenML
    return " ".join(words)


def named(script: ModuleType) -> str:
    """Return the name of a module, also of the one that Python runs."""
    return script.__spec__.name if script.__spec__ else script.__name__


def execute(script: ModuleType, options: Options) -> list[Row]:
    """Run a benchmark, print its rows below its question, and record them."""
    start = time.perf_counter()
    seeds = options.seeds or getattr(script, "SEEDS", _SEEDS)
    rows: list[Row] = script.run(replace(options, seeds=seeds))
    seconds = time.perf_counter() - start
    name = named(script).rpartition(".")[2]
    question = (script.__doc__ or "").strip().partition("\n")[0]
    print(f"\n== {name}: {question}\n{text(rows)}\n({seconds:.0f} s)", flush=True)
    if options.record is not None:
        about = {
            "benchmark": name,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_s": round(seconds, 1),
            "command": command(script, options),
            "quick": options.quick,
            "machine": machine(),
        }
        record(options.record / f"{name}.json", about, rows)
    return rows


def record(file: Path, about: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Keep rows with what is known about their run, a row in each line."""
    head = json.dumps(about, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(f'{head},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    new.replace(file)


def main(run: Callable[[Options], list[Row]]) -> None:
    """Run one benchmark from the command line: header, table, recorded rows."""
    script = sys.modules[run.__module__]
    options = parse(script.__doc__)
    print(header(options))
    execute(script, options)
