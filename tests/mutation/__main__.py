"""Mutation testing: which small changes of the package does no test see?

``make mutants`` draws mutants of three layers, runs the tests that reach each, and prints the scores.
It first records which tests reach which lines. Each mutant becomes a line of JSON in
``build/mutation``, and a run that is started again goes on from there: delete what has changed.
"""

import argparse
import json
import math
import os
from dataclasses import asdict
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.mutation.children import side_by_side
from tests.mutation.mutants import Mutant, sample
from tests.mutation.reach import Reach, record
from tests.mutation.session import Session, pytest_quietly, test_files
from tests.mutation.trials import judge

LAYERS = ("numerics", "distances", "models")


def results(file: Path) -> dict[str, dict[str, Any]]:
    """Read the last line about each mutant, by its name."""
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return {line["name"]: line for line in lines}


def judge_all(
    session: Session, mutants: list[Mutant], folder: Path, until: datetime | None, again: bool
) -> None:
    """Judge mutants that have no line yet, and append their lines.

    Those that survived are judged once more, by all tests that reach them, if ``again``.
    """
    reach = Reach.read(folder / "reach")
    file = folder / "mutants.jsonl"
    known = results(file)
    for mutant in mutants:
        if until and datetime.now() > until:
            return
        line = known.get(mutant.name)
        survived = line and not line["killed_by"]
        if survived if again else line is None:
            line = {"name": mutant.name, "layer": Path(mutant.path).parts[1]}
            trial = asdict(judge(session, mutant, reach, every=again))
            with file.open("a") as lines:
                lines.write(json.dumps(line | trial) + "\n")


def wilson(found: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a proportion."""
    share = found / number
    centre = share + z**2 / (2 * number)
    half = z * math.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    return (centre - half) / (1 + z**2 / number), (centre + half) / (1 + z**2 / number)


def report(mutants: list[Mutant], folder: Path) -> None:
    """Print the scores of what has been judged, and what survived."""
    known = results(folder / "mutants.jsonl")
    judged = [known[mutant.name] for mutant in mutants if mutant.name in known]
    for layer in LAYERS:
        of_layer = [line for line in judged if line["layer"] == layer]
        if of_layer:
            killed = sum(bool(line["killed_by"]) for line in of_layer)
            low, high = wilson(killed, len(of_layer))
            print(
                f"{layer}: {killed} of {len(of_layer)} found, {killed / len(of_layer):.1%} "
                f"({low:.1%} to {high:.1%})"
            )
    for mutant in mutants:
        line = known.get(mutant.name)
        if line and not line["killed_by"]:
            print(f"\n{mutant.name} ({line['tests']} tests, {line['left']} left out)")
            changes = zip(
                Path(mutant.path).read_text().splitlines(),
                mutant.source().splitlines(),
                strict=False,
            )
            before, after = next((a, b) for a, b in changes if a != b)
            print(f"-{before}\n+{after}")


def main() -> None:
    """Draw, judge and report."""
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument("--number", type=int, default=300, help="mutants of each layer")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the mutants")
    parser.add_argument("--folder", type=Path, default=Path("build/mutation"), help="results")
    parser.add_argument("--until", type=datetime.fromisoformat, help="start no mutant after this")
    parser.add_argument(
        "--again",
        action="store_true",
        help="judge survivors once more, by all tests that reach them",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes that judge side by side")
    parser.add_argument("--report", action="store_true", help="judge nothing")
    options = parser.parse_args()
    os.nice(15)
    drawn = [
        sample(Path("gp_distributions", layer), options.number, options.seed) for layer in LAYERS
    ]
    mutants = [mutant for each in zip_longest(*drawn) for mutant in each if mutant]

    files = list(test_files())

    def work(session: Session) -> None:
        side_by_side(
            lambda n: record(session, files[n :: options.workers], options.folder / "reach"),
            options.workers,
        )
        side_by_side(
            lambda n: judge_all(
                session, mutants[n :: options.workers], options.folder, options.until, options.again
            ),
            options.workers,
        )

    if not options.report:
        pytest_quietly(files, Session(work))
    report(mutants, options.folder)


if __name__ == "__main__":
    main()
