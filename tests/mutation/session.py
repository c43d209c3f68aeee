"""One session of pytest that collects all tests once; whatever runs them runs in children of it."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

# In the order of what they are likely to tell about the three layers. The others make pictures, pages
# and benchmarks: a failure there says little about one line.
FOLDERS = (
    "numerics",
    "distances",
    "models",
    "kernels",
    ".",
    "fitting",
    "scoring",
    "rows",
    "measures",
    "saving",
    "estimators",
    "sharding",
    "relevances",
    "testing",
    "comparison",
    "bayesopt",
)
_NOT_USED = ("test_structure.py", "test_docs.py", "test_project.py", "test_threads.py")


def test_files() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted(Path("tests", folder).glob("test_*.py")):
            if path.name not in _NOT_USED:
                yield str(path)


class Session:
    """A plugin of pytest that calls a function in place of the tests.

    Args:
        work: Gets this session. It calls :meth:`run` in children only: fixtures stay unmade here.
    """

    def __init__(self, work: Callable[["Session"], None]) -> None:
        self.work = work
        self.items: dict[str, pytest.Item] = {}
        self.reports: list[pytest.TestReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        torch.testing.assert_close(0.0, 0.0)  # imports for a second when it is called first
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def run(self, names: Iterable[str], *, stop: bool = True) -> None:
        """Run tests in this order, until one fails."""
        items = [self.items[name] for name in names if name in self.items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if stop and self.failed:
                return

    @property
    def failed(self) -> str | None:
        """Name of the first test that failed."""
        return next((report.nodeid for report in self.reports if report.failed), None)


class First:
    """A plugin of pytest that runs some tests in an order, and leaves the others out."""

    def __init__(self, names: list[str]) -> None:
        self.order = {name: place for place, name in enumerate(names)}
        self.failed: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(found, key=lambda item: self.order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed = f"{report.nodeid} (collection)"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid


def pytest_quietly(files: Iterable[str], plugin: object) -> int:
    """Run pytest; hypothesis draws the same examples each time."""
    from hypothesis import settings

    settings.register_profile("mutation", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutation")
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *files], plugins=[plugin]))


def run_afresh(names: list[str], packages: Iterable[str]) -> str | None:
    """Import some packages once more, run tests, and return the name of the first that fails."""
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            del sys.modules[name]
    first = First(names)
    files = dict.fromkeys(name.partition("::")[0] for name in names)
    silent: Any = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        status = pytest_quietly(files, first)
    return first.failed or (f"pytest ended with {status}" if status else None)
