"""Which test reaches which lines of the package, and how long it takes."""

import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutation.children import in_child
from tests.mutation.session import Session

_LONGEST = 900.0


class _Recorder:
    """A plugin of pytest: lines and seconds of each test; those of fixtures count for the file."""

    def __init__(self, recorder: coverage.Coverage) -> None:
        self.recorder = recorder
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self.recorder.switch_context("fixtures")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.recorder.switch_context(item.nodeid)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - start
            self.recorder.switch_context("")


def _record(session: Session, names: list[str]) -> dict[str, Any]:
    warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
    recorder = coverage.Coverage(data_file=None, config_file=False, include=["gp_distributions/*"])
    plugin = _Recorder(recorder)
    session.items[names[0]].config.pluginmanager.register(plugin)
    recorder.start()
    session.run(names, stop=False)
    recorder.stop()
    data = recorder.get_data()
    lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for file in data.measured_files():
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in filter(None, contexts):
                lines[context][str(Path(file).relative_to(Path.cwd()))].append(line)
    failed = sorted({report.nodeid for report in session.reports if report.failed})
    return {"seconds": plugin.seconds, "failed": failed, "lines": lines}


def record(session: Session, files: list[str], folder: Path) -> None:
    """Run each test file once, and write what it reaches into a file; files that exist are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        names = [name for name in session.items if name.partition("::")[0] == file]
        target = folder / (file.replace("/", "__") + ".json")
        if names and not target.exists():
            found = in_child(partial(_record, session, names), _LONGEST)
            target.write_text(json.dumps(found))


@dataclass
class Reach:
    """Seconds of each test, and the tests that reach each line of each file."""

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Reach":
        seconds: dict[str, float] = {}
        tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for path in sorted(folder.glob("*.json")):
            found = json.loads(path.read_text()) or {}
            if "lines" not in found:
                continue
            good = {n: s for n, s in found["seconds"].items() if n not in found["failed"]}
            seconds |= good
            for context, files in found["lines"].items():
                names = good if context == "fixtures" else [context]
                for file, numbers in files.items():
                    for number in numbers:
                        tests[file][number].update(name for name in names if name in good)
        return cls(seconds, tests)

    def reaching(self, file: str, lines: range | None) -> set[str]:
        """Tests that reach one of some lines of a file, or any."""
        found = self.tests.get(file, {})
        chosen = found if lines is None else [line for line in lines if line in found]
        return set().union(*(found[line] for line in chosen))
