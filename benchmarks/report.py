"""Write ``RESULTS.md`` and a page for each script from the rows that the scripts recorded.

``RESULTS.md`` has every target with its figure and command, and the missed ones first. The page of a
script, ``NAME.md`` beside ``NAME.json`` in ``benchmarks/results``, has its protocol and all its rows.
Targets are in ``targets.py``.

    python -m benchmarks.report
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Row, cell
from benchmarks.scripts import LONG, SCRIPTS, SIDE_BY_SIDE
from benchmarks.targets import BUDGETS, REACH, REASONS, Line

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "results"


@dataclass(frozen=True)
class Run:
    """The latest full run of a script."""

    benchmark: str
    finished: str
    wall_s: float
    command: str
    machine: Row
    rows: list[Row]


def read(folder: Path) -> dict[str, Run]:
    """Read the runs recorded in a folder, except those with ``--quick``."""
    runs = {}
    for file in sorted(folder.glob("*.json")):
        about = json.loads(file.read_text(encoding="utf-8"))
        if not about.pop("quick"):
            runs[file.stem] = Run(**about)
    return runs


def markdown(rows: Sequence[Row]) -> str:
    """Format rows as tables, with a new table wherever the columns change."""
    tables = []
    for _, group in itertools.groupby(rows, key=tuple):
        some = list(group)
        columns = [c for c in some[0] if any(row[c] is not None for row in some)]
        lines = [columns, ["---"] * len(columns)]
        lines += [[cell(row[column]).replace("|", "\\|") for column in columns] for row in some]
        tables.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(tables)


def standing(line: Line, runs: Mapping[str, Run]) -> Row:
    """Return a target with the figure measured for it."""
    run = runs.get(line.script)
    figure, met, reason = "not run", None, None
    if run is not None:
        try:
            figure, met = line.judge(run.rows)
        except LookupError:
            reason = "Not in the output of the script. Is a peer package missing?"
    if met is False:
        reason = REASONS.get(line.text, "Unknown.")
    command = f"python -m benchmarks.{line.script}" if run is None else run.command
    return {
        "what": line.text,
        "figure": figure,
        "target": line.target.replace("<=", "≤").replace(">=", "≥"),
        "met": met,
        "command": f"`{command}`",
        "reason": reason,
    }


def machines(runs: Iterable[Run]) -> str:
    """Describe what ran where and when, one item per machine."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        parts = [f"{key} {value}" for key, value in run.machine.items() if value is not None]
        groups.setdefault(", ".join(parts), []).append(run)
    lines = []
    for machine, some in groups.items():
        days = sorted({run.finished[:10] for run in some})
        span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        names = "" if len(groups) == 1 else f" ({', '.join(run.benchmark for run in some)})"
        lines.append(f"- {span}: {machine}{names}.")
    return "\n".join(lines)


def explained(doc: str) -> str:
    """Return the docstring of a script up to its command, in Markdown."""
    text = re.split(r"\n +python -m ", doc)[0].strip()
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    return re.sub(r"(:\w+:)?`+([^`]+)`+", r"`\2`", text)


def documented(name: str) -> str:
    """Return the docstring of a script."""
    return ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))) or ""


def page(name: str, run: Run | None) -> str:
    """Return the page of a script: question, protocol, command, time, tables and figures."""
    question, _, protocol = explained(documented(name)).partition("\n\n")
    parts = [f"# {question}", protocol]
    if run is None:
        parts += [f"Not run: `python -m benchmarks.{name}`."]
    else:
        parts += [f"`{run.command}`, {run.wall_s:.0f} s, {run.finished[:10]}.", markdown(run.rows)]
        figures = sorted((FOLDER / "figures").glob(f"{name}*.png"))
        parts += [f"![{figure.stem}](../figures/{figure.name})" for figure in figures]
    parts += [f"Source: [{name}.py](../{name}.py). All results: [RESULTS.md](../RESULTS.md)."]
    return "\n\n".join(filter(None, parts)) + "\n"


def index(runs: Mapping[str, Run], standings: Mapping[str, list[Row]]) -> str:
    """Return a table of all scripts: question, targets met and time."""
    rows: list[Row] = []
    for name in SCRIPTS:
        met = [row["met"] for row in standings.get(name, ())]
        run = runs.get(name)
        rows.append(
            {
                "question": f"[{explained(documented(name)).splitlines()[0]}](results/{name}.md)",
                "targets met": f"{met.count(True)} of {len(met)}" if met and run else None,
                "run": "not run" if run is None else run.finished[:10],
                "minutes": None if run is None else f"{run.wall_s / 60:.1f}",
            }
        )
    return markdown(rows)


def minutes(runs: Mapping[str, Run], *, long: bool) -> str:
    """Return the minutes that the scripts of one make target take on two cores, from recorded times."""
    some = {name: run.wall_s for name, run in runs.items() if (name in LONG) == long}
    beside = sum(wall_s for name, wall_s in some.items() if name in SIDE_BY_SIDE)
    return f"{(sum(some.values()) - beside / 2) / 60:.0f} minutes for {len(some)} scripts"


def results(runs: Mapping[str, Run]) -> str:
    """Return the text of ``RESULTS.md``."""
    lines = [(line, standing(line, runs)) for line in (*BUDGETS, *REACH)]
    standings: dict[str, list[Row]] = {}
    for line, row in lines:
        standings.setdefault(line.script, []).append(row)
    met = [row["met"] for _, row in lines]
    missed = [row | {"met": None} for _, row in lines if row["met"] is False]
    whole, long = minutes(runs, long=False), minutes(runs, long=True)
    parts = [
        "# Results",
        f"Of {len(met)} targets, {met.count(True)} are met, {met.count(False)} are missed and "
        f"{met.count(None)} were not run. Each has the command that measures it. "
        "[Papers, table by table](../docs/papers.md) says which published figures reproduce, and which "
        "experiments were not run; [Findings](../docs/findings.md) has answers with pictures.",
        "## Missed" if missed else "",
        markdown(missed),
        "## Questions\n\nEach page has the protocol, the command and all figures.",
        index(runs, standings),
        "## Speed and memory\n\nRatios compare times within one run.",
        markdown([row for line, row in lines if line in BUDGETS]),
        "## Accuracy\n\nMeans over seeds; the pages above have the details.",
        markdown([row for line, row in lines if line in REACH]),
        "## Machines\n\nNo GPU was at hand: nothing was measured on CUDA. From recorded times, with "
        "scripts that measure accuracy two by two: `make benchmarks`, "
        f"{whole}; `make benchmarks-long`, {long}. `python -m benchmarks.report` writes this page from "
        "the recorded rows in `benchmarks/results`.",
        machines(runs.values()),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def pages(folder: Path) -> dict[Path, str]:
    """Return the text of all pages, by file, from the rows recorded in a folder."""
    runs = read(folder)
    texts = {folder / f"{name}.md": page(name, runs.get(name)) for name in SCRIPTS}
    return {folder.parent / "RESULTS.md": results(runs)} | texts


def write(folder: Path = RECORDS) -> None:
    """Write the pages of the rows recorded in a folder."""
    for file, text in pages(folder).items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
