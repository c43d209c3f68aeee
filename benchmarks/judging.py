"""Targets for the figures of benchmarks; each benchmark lists its own in ``TARGETS``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness import Row, Value

Rows = Sequence[Row]
# Returns the figure as text and whether it meets its target. LookupError: the row was not run.
Judge = Callable[[Rows], tuple[str, bool]]


@dataclass(frozen=True)
class Target:
    """A target for a figure of a benchmark.

    Attributes:
        text: Description of the figure.
        target: Description of the target.
        judge: Finds the figure in the rows of the benchmark.
        reason: Why the target is missed; shown only if it is.
        asked: Whether ``RESULTS.md`` has it, and not only the page of its subject.
    """

    text: str
    target: str
    judge: Judge
    reason: str = "Unknown."
    asked: bool = False


def find(rows: Rows, **where: Value) -> Row:
    """Return the only row with the given values."""
    found = [row for row in rows if where.items() <= row.items()]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows with {where}")
    return found[0]


def number(row: Row, column: str) -> float:
    """Return a figure of a row."""
    value = row.get(column)
    if not isinstance(value, int | float):
        raise LookupError(f"no {column} in {row}")
    return float(value)


def limit(
    text: str,
    target: str,
    column: str,
    *,
    error: str = "",
    reason: str = "",
    asked: bool = False,
    **where: Value,
) -> Target:
    """Return a target for one figure, ``"<= 4 GiB"``, ``">= 0.9"`` or ``"0.92 to 0.97"``.

    With ``error``, a column of standard errors, the figure meets it within one of them.
    """
    low, high, unit = -float("inf"), float("inf"), ""
    if bound := re.fullmatch(r"([<>])= (\S+)(.*)", target):
        unit = bound[3]
        low, high = (low, float(bound[2])) if bound[1] == "<" else (float(bound[2]), high)
    else:
        low, high = map(float, target.split(" to "))

    def judge(rows: Rows) -> tuple[str, bool]:
        row = find(rows, **where)
        value, slack = number(row, column), number(row, error) if error else 0.0
        told = f"{value:.4g}{unit}" if bound else f"{value:.3f}"
        return told + f" ± {slack:.2g}" * bool(error), low - slack <= value <= high + slack

    target += ", within its standard error" * bool(error)
    return Target(text, target, judge, reason or Target.reason, asked)


def limits(
    text: str,
    target: str | Mapping[str, str],
    column: str,
    names: Iterable[str] = (),
    *,
    reason: str = "",
    asked: bool = False,
) -> Target:
    """Return a target that all figures of a column meet, each its own: bounds by name of their rows."""
    bounds = target if isinstance(target, Mapping) else dict.fromkeys(names, target)
    parts = [limit(name, bound, column, name=name) for name, bound in bounds.items()]

    def judge(rows: Rows) -> tuple[str, bool]:
        figures, met = zip(*(part.judge(rows) for part in parts), strict=True)
        return ", ".join(figures), all(met)

    told = target if isinstance(target, str) else ", ".join(bounds.values())
    return Target(text, told, judge, reason or Target.reason, asked)


def beside(
    text: str,
    target: str,
    column: str,
    names: Sequence[str],
    met: Callable[..., bool],
    *,
    spread: str = "",
    reason: str = "",
    asked: bool = False,
    **where: Value,
) -> Target:
    """Return a target for a figure of the first named row, compared with those of the others.

    Args:
        text: Description of the figure.
        target: Description of the target.
        column: Column of the figures.
        names: Names of the rows.
        met: Function of the figures, in the order of the names.
        spread: Column of the spread that stands beside each figure, if any.
        reason: Why the target is missed.
        asked: Whether ``RESULTS.md`` has it.
        **where: Further values of all rows.
    """

    def judge(rows: Rows) -> tuple[str, bool]:
        found = [find(rows, name=name, **where) for name in names]
        values = [number(row, column) for row in found]
        texts = [f"{value:.3f}" for value in values]
        if spread:
            texts = [f"{number(row, column):.1f} ± {number(row, spread):.1f}" for row in found]
        return f"{texts[0]} beside {' '.join(texts[1:])}", met(*values)

    return Target(text, target, judge, reason or Target.reason, asked)
