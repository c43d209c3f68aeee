"""Whether a test fails on a mutant."""

import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.children import in_child
from tests.mutation.mutants import Mutant
from tests.mutation.reach import Reach
from tests.mutation.replacing import import_instead, replaced
from tests.mutation.session import Session, run_afresh

_LONGEST = 12.0  # seconds, as recorded, of all tests of a mutant
_LEAST, _PATIENCE = 5.0, 8.0  # all may take so many times as long as recorded, and some seconds


@dataclass(frozen=True)
class Trial:
    """What the tests made of a mutant.

    Args:
        killed_by: Name of the test that failed; "timeout"; or None if none did.
        tests: Number of tests chosen.
        left: Number of tests that reach the line and were left out, as they would take too long.
        seconds: Time that it took.
    """

    killed_by: str | None
    tests: int
    left: int
    seconds: float


def mirrors(path: str, test: str) -> bool:
    """Return whether a test is in the file that mirrors a file of the package."""
    layer, name = Path(path).parts[1], Path(path).stem
    file = Path(test.partition("::")[0])
    return file.parent.name == layer and file.stem.startswith(f"test_{name}")


def judge(session: Session, mutant: Mutant, reach: Reach, *, every: bool = False) -> Trial:
    """Run the tests that reach a mutant, those that mirror its file first, then the cheapest.

    Args:
        session: Where tests run.
        mutant: The mutant.
        reach: Which tests reach it.
        every: Whether to leave none out, whatever it takes.
    """
    start = time.monotonic()
    lines = mutant.lines and range(mutant.lines[0], mutant.lines[1] + 1)
    reached = reach.reaching(mutant.path, lines) or reach.reaching(mutant.path, None)
    names = reached & session.items.keys()
    order = sorted(names, key=lambda n: (not mirrors(mutant.path, n), reach.seconds[n]))
    seconds = 0.0
    chosen = []
    for name in order:
        if every or seconds + reach.seconds[name] <= _LONGEST:
            seconds += reach.seconds[name]
            chosen.append(name)
    killed = None
    if chosen:
        found = in_child(lambda: _run(session, mutant, chosen), _PATIENCE * (_LEAST + seconds))
        if found and "error" in found:
            raise RuntimeError(f"{mutant.name}: {found['error']}")
        killed = "timeout" if found is None else found["failed"]
    left = len(order) - len(chosen)
    return Trial(killed, len(chosen), left, round(time.monotonic() - start, 1))


def _run(session: Session, mutant: Mutant, names: list[str]) -> dict[str, str | None]:
    source = mutant.source()
    if replaced(mutant.path, source):
        session.run(names)
        return {"failed": session.failed}
    import_instead(mutant.path, source)
    return {"failed": run_afresh(names, ("gp_distributions", "tests", "cases"))}
