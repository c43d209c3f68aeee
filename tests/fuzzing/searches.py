"""A state machine of searches: asked, told, closed and resumed in any order."""

import contextlib
import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from fuzzing.settings import changed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gp_distributions import (
    DistributionGP,
    PointClouds,
    PoolSearch,
    ShapeOptimizer,
    SlicedWassersteinKernel,
)
from gp_distributions.testing.clouds import random_clouds
from gp_distributions.warnings import DistributionWarning

CLOUDS = PointClouds.from_list([points for points, _ in random_clouds(9, sizes=(2, 5))])


def make_model(X: torch.Tensor, Y: torch.Tensor) -> DistributionGP:
    """A small model, of clouds or of designs as clouds of one atom."""
    rows = torch.cat([X, torch.ones_like(X[..., :1])], -1) if X.shape[-1] == 2 else X
    kernel = SlicedWassersteinKernel(2, num_slices=4, num_quantiles=5)
    return DistributionGP(rows, Y, kernel)


class SearchMachine(RuleBasedStateMachine):
    """Candidates depend on the settings, the seed and the outcomes told, and on nothing else."""

    @initialize(seed=st.integers(0, 10**6), initial=st.integers(2, 4))
    def start(self, seed: int, initial: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "search.jsonl")
        self.options: dict[str, Any] = {"seed": seed, "initial": initial, "restarts": 0}
        self.options["model"] = make_model
        self.told: list[tuple[int, float | None]] = []
        self.optimizer = self.opened(self.path)
        self.pending: list[int] = []
        self.settings = settings()

    def opened(self, path: Path | None) -> ShapeOptimizer:
        return ShapeOptimizer(PoolSearch(CLOUDS), path=path, **self.options)

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.folder.cleanup()

    @property
    def left(self) -> list[int]:
        known = [index for index, _ in self.told] + self.pending
        return [index for index in range(len(CLOUDS)) if index not in known]

    @invariant()
    def results_follow_from_what_was_told(self) -> None:
        if not hasattr(self, "optimizer"):
            return
        assert changed(self.settings, settings()) == []
        found = [(e.candidate, e.outcomes and e.outcomes[0]) for e in self.optimizer.evaluations]
        assert found == self.told
        values = [(value, index) for index, value in self.told if value is not None]
        if values:
            best = max(value for value, _ in values)
            assert self.optimizer.best[1] == best
            assert self.optimizer.trace[-1] == best

    @rule(q=st.integers(1, 2))
    def ask(self, q: int) -> None:
        if len(self.left) < q:
            return
        with warned():
            found = self.optimizer.ask(q)
        assert len(set(found)) == q
        assert set(found) <= set(self.left)
        self.pending += found

    @rule(data=st.data(), value=st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf]))
    def tell(self, data: st.DataObject, value: float) -> None:
        index = data.draw(st.sampled_from(self.pending or list(range(len(CLOUDS)))))
        self.optimizer.tell(index, value)
        self.record(index, value if math.isfinite(value) else None)

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(self.pending or list(range(len(CLOUDS)))))
        self.optimizer.tell_failure(index, "no mesh\n")
        self.record(index, None)

    def record(self, index: int, value: float | None) -> None:
        self.told.append((index, value))
        self.pending = [other for other in self.pending if other != index]

    @rule()
    def resume(self) -> None:
        """A new optimizer on the same file knows what was told, and asks again for what was not."""
        self.optimizer = self.opened(self.path)
        self.pending = []
        fresh = self.opened(None)
        for index, value in self.told:
            fresh.tell(index, math.nan if value is None else value)
        if self.left:
            with warned():
                found = self.optimizer.ask()
                assert found == fresh.ask()
            self.pending += found


@contextlib.contextmanager
def warned() -> Any:
    """Allow the warnings of the package: of fits to few clouds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistributionWarning)
        yield
