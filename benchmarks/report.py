"""Write ``benchmarks/RESULTS.md``: all figures with their targets and commands.

The input files hold the rows that scripts append with ``--json``. The latest run of each script counts,
and runs with ``--quick`` are ignored. Targets are in ``targets.py``.

    python -m benchmarks.report FILE.jsonl [FILE.jsonl ...] [--output benchmarks/RESULTS.md]
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Row, cell
from benchmarks.scripts import SCRIPTS
from benchmarks.targets import BUDGETS, REACH, REASONS, Line

# The name under which a run of all scripts is recorded.
ALL = "everything"

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"


@dataclass(frozen=True)
class Run:
    """The latest full run of a script."""

    benchmark: str
    finished: str
    wall_s: float
    command: str
    machine: Row
    rows: list[Row]


MISSING = """\
## Data that are not available

- Aerosol optical depth of MISR (Szabo et al. 2015). [entropy_regression](entropy_regression.py) has the
  other experiment of that paper, the entropy of a rotated normal distribution.
- USPS digits and natural scenes (Muandet et al. 2012).
  [support_measure_machines](support_measure_machines.py) has the two classes of Gaussians of that paper.
- Textures of the University of Illinois and the LHI animal faces (Kolouri et al. 2016).
  [image_embeddings](image_embeddings.py) has components, clusters and support vector machines on MNIST.
"""


def read(files: Iterable[Path]) -> dict[str, Run]:
    """Read the latest full run of each script."""
    runs: dict[str, Run] = {}
    for file in files:
        for line in file.read_text().splitlines():
            record = json.loads(line)
            name, finished, row = record["benchmark"], record["finished"], record["row"]
            known = runs.get(name)
            if record["quick"] or (known and known.finished > finished):
                continue
            if known is None or known.finished < finished:
                details = (record["wall_s"], record["command"], record["machine"])
                known = runs[name] = Run(name, finished, *details, rows=[])
            known.rows.append(row)
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


def section(name: str, run: Run | None) -> str:
    """Return the section of a script: question, command, time, tables and figures."""
    doc = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text())) or ""
    parts = [f"## [{name}]({name}.py)", explained(doc)]
    if run is None:
        return "\n\n".join([*parts, f"Not run: `python -m benchmarks.{name}`."])
    parts += [f"`{run.command}`, {run.wall_s:.0f} s, {run.finished[:10]}.", markdown(run.rows)]
    figures = sorted((FOLDER / "figures").glob(f"{name}*.png"))
    return "\n\n".join([*parts, *(f"![{f.stem}](figures/{f.name})" for f in figures)])


def results(runs: Mapping[str, Run], scripts: Sequence[str]) -> str:
    """Return the text of ``RESULTS.md``."""
    budgets, reach = ([standing(line, runs) for line in lines] for lines in (BUDGETS, REACH))
    met = [row["met"] for row in budgets + reach]
    whole = runs.get(ALL)
    runs = {name: run for name, run in runs.items() if name != ALL}
    parts = [
        "# Results",
        "`make benchmarks` writes this page, as does `python -m benchmarks.report FILE.jsonl` from rows "
        "that scripts recorded with `--json FILE.jsonl`. It lists missed targets as well as met ones.",
        f"Of {len(met)} targets, {met.count(True)} are met, {met.count(False)} are missed and "
        f"{met.count(None)} were not run.",
        "" if whole is None else f"`{whole.command}` took {whole.wall_s / 60:.0f} minutes.",
        machines(runs.values()),
        "## Budgets\n\nSpeed and memory. Ratios compare times within one run.",
        markdown(budgets),
        "## Accuracy\n\nMeans over seeds; the section of each script below gives the details.",
        markdown(reach),
        MISSING.strip(),
        *(section(name, runs.get(name)) for name in scripts),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the results from the given files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    given.output.write_text(results(read(given.files), SCRIPTS), encoding="utf-8")


if __name__ == "__main__":
    main()
