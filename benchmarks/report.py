"""Write ``RESULTS.md``, a page for each subject and one for each benchmark from the recorded rows.

``RESULTS.md`` has the missed targets, and the figures that users ask for. The page of a subject has all
its benchmarks and targets, and where they ran. The page of a benchmark, ``NAME.md`` beside ``NAME.json``
in ``benchmarks/results``, has its protocol and all its rows.

    python -m benchmarks.report
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.harness import Row, cell, tables
from benchmarks.judging import Target
from benchmarks.scripts import FOLDER, SUBJECTS, is_long, runs_alone, scripts, subject

RECORDS = FOLDER / "results"


@dataclass(frozen=True)
class Run:
    """The latest full run of a benchmark."""

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
    parts = []
    for columns, some in tables(rows):
        lines = [columns, ["---"] * len(columns)]
        lines += [[cell(row[column]).replace("|", "\\|") for column in columns] for row in some]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts)


def targets() -> list[tuple[str, Target]]:
    """Return all targets with the names of their benchmarks."""
    return [(name, t) for name, script in scripts().items() for t in getattr(script, "TARGETS", ())]


def standing(name: str, target: Target, runs: Mapping[str, Run]) -> Row:
    """Return a target of a benchmark with the figure measured for it."""
    run = runs.get(name)
    figure, met, reason = "not run", None, None
    if run is not None:
        try:
            figure, met = target.judge(run.rows)
        except LookupError:
            reason = "Not in the output of the benchmark. Is a peer package missing?"
    return {
        "what": target.text,
        "figure": figure,
        "target": target.target.replace("<=", "≤").replace(">=", "≥"),
        "met": met,
        "command": f"`{run.command if run else f'python -m {scripts()[name].__name__}'}`",
        "reason": target.reason if met is False else reason,
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


def explained(module: ModuleType) -> tuple[str, str]:
    """Return the question in a docstring, and what follows up to its command, in Markdown."""
    text = re.split(r"\n +python -m ", inspect.getdoc(module) or "")[0].strip()
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    question, _, protocol = re.sub(r"(:\w+:)?`+([^`]+)`+", r"`\2`", text).partition("\n\n")
    return question, protocol


def page(name: str, run: Run | None) -> str:
    """Return the page of a benchmark: question, protocol, command, time, tables and figures."""
    question, protocol = explained(script := scripts()[name])
    parts = [f"# {question}", protocol]
    if run is None:
        parts += [f"Not run: `python -m {script.__name__}`."]
    else:
        measured = f"{run.finished[:10]}, version {run.machine['gp_distributions']}"
        parts += [f"`{run.command}`, {run.wall_s:.0f} s, {measured}.", markdown(run.rows)]
        figures = sorted((FOLDER / "figures").glob(f"{name}*.png"))
        parts += [f"![{figure.stem}](../figures/{figure.name})" for figure in figures]
    about = subject(script)
    parts += [f"Source: [{name}.py](../{about}/{name}.py). [All of this subject]({about}.md)."]
    return "\n\n".join(filter(None, parts)) + "\n"


def counted(standings: Iterable[Row]) -> str | None:
    """Return how many targets are met of those that were judged or not run."""
    met = [row["met"] for row in standings]
    return f"{met.count(True)} of {len(met)}" if met else None


def subject_page(name: str, runs: Mapping[str, Run]) -> str:
    """Return the page of a subject: its benchmarks, targets and machines."""
    mine = {n: script for n, script in scripts().items() if subject(script) == name}
    judged = {n: [standing(n, t, runs) for m, t in targets() if m == n] for n in mine}
    index: list[Row] = [
        {
            "question": f"[{explained(script)[0]}]({n}.md)",
            "targets met": counted(judged[n]) if n in runs else None,
            "run": runs[n].finished[:10] if n in runs else "not run",
            "minutes": f"{runs[n].wall_s / 60:.1f}" if n in runs else None,
        }
        for n, script in mine.items()
    ]
    parts = [
        f"# {explained(import_module(f'benchmarks.{name}'))[0]}",
        "Each page has the protocol, the command and all figures.",
        markdown(index),
        "## Targets",
        markdown([row for n in mine for row in judged[n]]),
        "## Machines",
        machines(runs[n] for n in mine if n in runs),
        "[All results](../RESULTS.md).",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def minutes(runs: Mapping[str, Run], *, long: bool) -> str:
    """Return the minutes that one make target takes on two cores, from recorded times."""
    some = [n for n, script in scripts().items() if n in runs and is_long(script) == long]
    shares = [runs[n].wall_s / (1 if runs_alone(scripts()[n]) else 2) for n in some]
    return f"{sum(shares) / 60:.0f} minutes for {len(some)} benchmarks"


def results(runs: Mapping[str, Run]) -> str:
    """Return the text of ``RESULTS.md``."""
    judged = [(name, target, standing(name, target, runs)) for name, target in targets()]
    met = [row["met"] for *_, row in judged]
    subjects: list[Row] = []
    asked: list[str] = []
    for name in SUBJECTS:
        question = explained(import_module(f"benchmarks.{name}"))[0]
        mine = [(t, row) for n, t, row in judged if subject(scripts()[n]) == name]
        subjects.append(
            {
                "subject": f"[{question}](results/{name}.md)",
                "benchmarks": sum(subject(script) == name for script in scripts().values()),
                "targets met": counted(row for _, row in mine),
            }
        )
        if rows := [row | {"reason": None} for target, row in mine if target.asked]:
            asked += [f"## {name.capitalize()}", markdown(rows)]
    missed = [row | {"met": None} for *_, row in judged if row["met"] is False]
    parts = [
        "# Results",
        f"Of {len(met)} targets, {met.count(True)} are met, {met.count(False)} are missed and "
        f"{met.count(None)} were not run. This page has the missed ones, and the figures that users ask "
        "for, each with the command that measures it; the pages of the subjects have all. "
        "[Papers, table by table](../docs/papers.md) says which published figures reproduce, and which "
        "experiments were not run; [Findings](../docs/findings.md) has answers with pictures.",
        markdown(subjects),
        "## Missed" if missed else "",
        markdown(missed),
        *asked,
        "## Machines\n\nNo GPU was at hand: nothing was measured on CUDA. Ratios compare times within "
        "one run; accuracies are means over seeds. From recorded times, with benchmarks that measure "
        f"accuracy two by two: `make benchmarks`, {minutes(runs, long=False)}; `make benchmarks-long`, "
        f"{minutes(runs, long=True)}. `python -m benchmarks.report` writes this page from the recorded "
        "rows in `benchmarks/results`.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def pages(folder: Path) -> dict[Path, str]:
    """Return the text of all pages, by file, from the rows recorded in a folder."""
    runs = read(folder)
    return (
        {folder.parent / "RESULTS.md": results(runs)}
        | {folder / f"{name}.md": subject_page(name, runs) for name in SUBJECTS}
        | {folder / f"{name}.md": page(name, runs.get(name)) for name in scripts()}
    )


def write(folder: Path = RECORDS) -> None:
    """Write the pages of the rows recorded in a folder."""
    for file, text in pages(folder).items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
