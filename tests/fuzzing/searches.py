"""A state machine of searches: asked, told, run, killed, closed and resumed in any order."""

import contextlib
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions.warnings import BotorchWarning
from fault_tasks import AtLine
from fuzzing.settings import changed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from linear_operator.utils.warnings import NumericalWarning

from gp_distributions import (
    Decoder,
    DesignSearch,
    DistributionGP,
    MixedSearch,
    PointClouds,
    PoolSearch,
    ShapeOptimizer,
    SlicedWassersteinKernel,
)
from gp_distributions.bayesopt import Search
from gp_distributions.testing.clouds import random_clouds
from gp_distributions.warnings import DistributionWarning

CLOUDS = PointClouds.from_list([points for points, _ in random_clouds(9, sizes=(2, 5))])
BOX = torch.tensor([[-2.0, -1.0], [2.0, 3.0]], dtype=torch.float64)
NUMBER = len(CLOUDS)
DECODER = Decoder(torch.nn.Unflatten(-1, (1, 2)))  # a design is a cloud of one atom

# By name: a function that makes a search, and candidates that it need not ask for.
SEARCHES: dict[str, tuple[Callable[[], Search], list[Any]]] = {
    "pool": (lambda: PoolSearch(CLOUDS), list(range(NUMBER))),
    "designs": (
        lambda: DesignSearch(DECODER, BOX, num_restarts=1, raw_samples=4),
        list(torch.lerp(BOX[0], BOX[1], torch.linspace(0, 1, NUMBER).double().unsqueeze(-1))),
    ),
    "mixed": (
        lambda: MixedSearch(
            shape=PoolSearch(CLOUDS), angle=(0.0, 1.0), num_restarts=2, raw_samples=4, maxiter=5
        ),
        [{"shape": i, "angle": i / NUMBER} for i in range(NUMBER)],
    ),
}

# Models refuse targets whose squares underflow, and say so.
VALUES = st.floats(-1e3, 1e3).filter(lambda value: value == 0 or abs(value) > 1e-140)


class MakeModel:
    """Makes a small model of the rows or designs of a search."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def __call__(self, X: torch.Tensor, Y: torch.Tensor) -> DistributionGP:
        kernel = SlicedWassersteinKernel(2, num_slices=4, num_quantiles=5)
        return DistributionGP(X, Y, kernel, input_transform=self.search.input_transform)


class Killed(BaseException):
    """The process would have ended here."""


class SearchMachine(RuleBasedStateMachine):
    """Candidates depend on the settings, the seed and the outcomes told, and on nothing else."""

    @initialize(
        kind=st.sampled_from(sorted(SEARCHES)),
        seed=st.integers(0, 10**6),
        initial=st.integers(2, 4),
    )
    def start(self, kind: str, seed: int, initial: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.copies = 0
        self.path = Path(self.folder.name, "0", "search.jsonl")
        self.path.parent.mkdir()
        self.options: dict[str, Any] = {"seed": seed, "initial": initial, "restarts": 0}
        self.finite = kind == "pool"
        self.make_search, self.candidates = SEARCHES[kind]
        self.search = self.make_search()
        self.options["model"] = None if kind == "mixed" else MakeModel(self.search)
        self.told: list[tuple[Any, float | None]] = []
        self.optimizer = self.opened(self.path)
        self.pending: list[Any] = []
        self.settings = settings()

    def opened(self, path: Path | None) -> ShapeOptimizer:
        return ShapeOptimizer(self.make_search(), path=path, **self.options)

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.folder.cleanup()

    def left(self) -> float:
        """The number of candidates that may be asked for."""
        known = [index for index, _ in self.told] + self.pending
        return len(set(range(NUMBER)).difference(known)) if self.finite else math.inf

    def found(self) -> list[tuple[Any, float | None]]:
        return [(e.candidate, e.outcomes and e.outcomes[0]) for e in self.optimizer.evaluations]

    def some(self, data: st.DataObject) -> Any:
        """Return a candidate that was asked for, or else any."""
        known = [self.search.show(self.search.plain(plain)) for plain in self.pending]
        choices = known or self.candidates
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    @invariant()
    def results_follow_from_what_was_told(self) -> None:
        if not hasattr(self, "optimizer"):
            return
        names = changed(self.settings, settings())
        assert not names, names
        assert self.found() == self.told
        values = [value for _, value in self.told if value is not None]
        if values:
            assert self.optimizer.best[1] == max(values)
            assert self.optimizer.trace[-1] == max(values)

    @rule(q=st.integers(1, 2))
    def ask(self, q: int) -> None:
        if self.left() < q:
            return
        with warned():
            found = self.optimizer.ask(q)
        assert len(found) == q
        asked = [self.search.plain(candidate) for candidate in found]
        if self.finite:
            assert len(set(asked).difference(self.pending, [i for i, _ in self.told])) == q
        if isinstance(self.search, DesignSearch):
            assert all(bool(((BOX[0] <= x) & (x <= BOX[1])).all()) for x in found)
        self.pending += asked

    @rule(data=st.data(), value=VALUES | st.sampled_from([math.nan, math.inf]))
    def tell(self, data: st.DataObject, value: float) -> None:
        candidate = self.some(data)
        self.optimizer.tell(candidate, value)
        self.record(candidate, value if math.isfinite(value) else None)

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        candidate = self.some(data)
        self.optimizer.tell_failure(candidate, "no mesh\n")
        self.record(candidate, None)

    def record(self, candidate: Any, value: float | None) -> None:
        plain = self.search.plain(candidate)
        self.told.append((plain, value))
        self.pending = [other for other in self.pending if other != plain]

    @rule(data=st.data(), line=st.integers(1, 90))
    def kill(self, data: st.DataObject, line: int) -> None:
        """An evaluation is recorded whole or not at all, whichever line of ``tell`` is the last."""
        candidate, copies = self.some(data), self.copies
        at = AtLine(line, self.copy)
        at.within(self.optimizer.tell)(candidate, 0.5)
        before = [*self.told]
        self.record(candidate, 0.5)
        if self.copies > copies:
            self.reopen()
            assert self.found() in (before, self.told)
            self.told = self.found()

    @rule(count=st.integers(1, 3), q=st.integers(1, 2), end=st.integers(0, 4))
    def run(self, count: int, q: int, end: int) -> None:
        """A run goes on after a failure, and one that is killed has lost nothing but one evaluation."""
        if self.left() < count:
            return
        calls = 0

        def evaluate(candidate: Any) -> float:
            nonlocal calls
            calls += 1
            if calls == end:
                self.copy()
                raise Killed
            if calls == 2:
                self.record(candidate, None)
                raise ArithmeticError
            self.record(candidate, float(calls))
            return float(calls)

        with warned(), contextlib.suppress(Killed):
            self.optimizer.run(evaluate, len(self.told) + count, q=q, progress=False)
        if calls == end:
            self.reopen()

    def copy(self) -> None:
        """Copy the folder as it is now, which is what a process that is killed now leaves."""
        self.copies += 1
        shutil.copytree(self.path.parent, Path(self.folder.name, str(self.copies)))

    def reopen(self) -> None:
        """Go on from the last copy with a new optimizer."""
        self.path = Path(self.folder.name, str(self.copies), self.path.name)
        self.optimizer = self.opened(self.path)
        self.pending = []

    @rule()
    def resume(self) -> None:
        """A new optimizer on the same file knows what was told, and asks again for what was not."""
        self.optimizer = self.opened(self.path)
        self.pending = []
        fresh = self.opened(None)
        for plain, value in self.told:
            candidate = self.search.show(self.search.plain(plain))
            fresh.tell(candidate, math.nan if value is None else value)
        if self.left():
            with warned():
                found = [self.search.plain(candidate) for candidate in self.optimizer.ask()]
                assert found == [self.search.plain(candidate) for candidate in fresh.ask()]
            self.pending += found


@contextlib.contextmanager
def warned() -> Any:
    """Allow the warnings of the package, of fits to few clouds, and those of optimisers and factors."""
    with warnings.catch_warnings():
        for category in (DistributionWarning, BotorchWarning, NumericalWarning):
            warnings.simplefilter("ignore", category)
        yield
