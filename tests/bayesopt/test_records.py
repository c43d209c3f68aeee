"""Checkpoints: which lines are accepted, and that nothing is lost silently."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gp_distributions import PointClouds
from gp_distributions.bayesopt import (
    CheckpointError,
    DesignSearch,
    FreeSearch,
    PoolSearch,
    Search,
    ShapeOptimizer,
)

POINTS = torch.rand(6, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CLOUDS = PointClouds(POINTS)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
ROW = CLOUDS[0].pack().tolist()


def pool() -> PoolSearch:
    return PoolSearch(CLOUDS)


def designs() -> DesignSearch:
    return DesignSearch(None, BOX, dim=2)


def free() -> FreeSearch:
    return FreeSearch(CLOUDS, BOX)


def optimizer(path: Path, search: Search | None = None) -> ShapeOptimizer:
    return ShapeOptimizer(search or pool(), constraints=1, path=path)


def line(candidate: Any, outcomes: Any = (1.0, 0.0), failure: Any = None) -> bytes:
    entry = {"candidate": candidate, "outcomes": outcomes, "failure": failure}
    return json.dumps(entry).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "search.jsonl"


class TestLines:
    @pytest.mark.parametrize(
        ("search", "candidate", "expected"),
        [
            *[(pool, wrong, "index from 0 to 5") for wrong in (6, -1, 2.5, "3", [3], None)],
            *[(designs, wrong, "numbers within") for wrong in ([0.1], [[0.1, 0.2]], "ab", {})],
            *[(designs, [0.1, wrong], "numbers within") for wrong in (float("nan"), 10**400, 1.5)],
            *[(free, wrong, "Expected one cloud") for wrong in (ROW[:-3], [ROW], 3, None)],
            (free, [*ROW[:-1], None], ""),
            (free, [*ROW[:-1], -1.0], "weights >= 0"),
        ],
    )
    def test_candidates(
        self, search: Callable[[], Search], candidate: Any, expected: str, path: Path
    ) -> None:
        optimizer(path, search())
        path.write_bytes(path.read_bytes() + line(candidate))
        with pytest.raises(CheckpointError, match=f"Line 2 of .* not an evaluation .*{expected}"):
            optimizer(path, search())

    @pytest.mark.parametrize(
        ("wrong", "expected"),
        [
            *[(line(3, outcomes), "to be 2, got") for outcomes in ([1.0], [1.0, 2.0, 3.0], 1.0)],
            *[(line(3, [1.0, entry]), "number for each") for entry in (None, "12")],
            *[(entry + b"\n", "") for entry in (b"3", b"null", b"{}", b"", b"\xff")],
        ],
    )
    def test_entries(self, wrong: bytes, expected: str, path: Path) -> None:
        optimizer(path).tell(4, [1.0, 0.0])
        content = path.read_bytes() + wrong
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"Line 3 of .* not an evaluation .*{expected}"):
            optimizer(path)
        assert path.read_bytes() == content

    def test_what_is_right_is_taken(self, path: Path) -> None:
        for name, search, candidate in (
            ("pool", pool(), 5),
            ("designs", designs(), [0.25, 1]),
            ("free", free(), ROW),
        ):
            file = path.with_name(name)
            optimizer(file, search)
            file.write_bytes(file.read_bytes() + line(candidate, [1, -2.5]))
            (evaluation,) = optimizer(file, search).evaluations
            assert evaluation.candidate == candidate
            assert evaluation.outcomes == (1.0, -2.5)
            assert evaluation.key == json.dumps(search.plain(search.show(candidate)))

    def test_reasons_of_any_kind_can_be_read_again(self, path: Path) -> None:
        made = optimizer(path)
        for index, reason in enumerate((None, "", ValueError("x"), "two\nlines \ud800")):
            made.tell_failure(index, reason)
        failures = [e.failure for e in optimizer(path).evaluations]
        assert failures == ["None", "", "x", "two\nlines \ud800"]


def test_one_search_at_a_time(path: Path, tmp_path: Path) -> None:
    linked = tmp_path / "links" / "other.jsonl"
    linked.parent.mkdir()
    linked.symlink_to(path)
    first, second = optimizer(path), optimizer(linked)

    def use(index: int) -> list[float]:
        for other in (lambda: second.tell(1, [1.0, 2.0]), lambda: optimizer(linked)):
            with pytest.raises(CheckpointError, match="in use"):
                other()
        return [1.0, 2.0]

    first.run(use, 1, progress=False)
    assert len(first.evaluations) == 1
    assert first.evaluations[0].failure is None
