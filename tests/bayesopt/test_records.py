"""Checkpoints: which lines are accepted, and that nothing is lost silently."""

import errno
import json
import os
import shutil
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
from gp_distributions.bayesopt.records import Checkpoint

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
            *[(designs, wrong, "design within") for wrong in ([0.1], [[0.1, 0.2]], "ab", {})],
            *[(designs, [0.1, wrong], "design within") for wrong in (float("nan"), 10**400, 1.5)],
            *[(free, wrong, "Expected one cloud") for wrong in (ROW[:-3], [ROW], 3, None)],
            (free, [*ROW[:-1], None], ""),
            (free, [*ROW[:-1], -1.0], "weights >= 0"),
        ],
    )
    def test_candidates(
        self, search: Callable[[], Search], candidate: Any, expected: str, path: Path
    ) -> None:
        optimizer(path, search())
        good = path.read_bytes()
        path.write_bytes(good + line(candidate))
        with pytest.raises(CheckpointError, match=f"Line 2 of .* not an evaluation .*{expected}"):
            optimizer(path, search())

    @pytest.mark.parametrize(
        ("outcomes", "failure", "expected"),
        [
            *[(wrong, None, "to be 2, got") for wrong in ([1.0], [1.0, 2.0, 3.0], 1.0)],
            *[([1.0, wrong], None, "number for each") for wrong in (None, "12")],
            ([1.0, float("inf")], None, "outcome 1 is inf"),
            ([1.0, 2.0], "x", "either outcomes or a failure as text"),
            (None, None, "either outcomes or a failure as text"),
            (None, 1, "either outcomes or a failure as text"),
        ],
    )
    def test_outcomes(self, outcomes: Any, failure: Any, expected: str, path: Path) -> None:
        optimizer(path).tell(4, [1.0, 0.0])
        path.write_bytes(path.read_bytes() + line(3, outcomes, failure))
        with pytest.raises(CheckpointError, match=f"Line 3 of .* not an evaluation .*{expected}"):
            optimizer(path)

    @pytest.mark.parametrize("entry", [b"3", b"null", b"{}", b'{"candidate": 3, "outcomes": [1]}'])
    def test_other_json(self, entry: bytes, path: Path) -> None:
        optimizer(path)
        path.write_bytes(path.read_bytes() + entry + b"\n")
        with pytest.raises(CheckpointError, match=r"Line 2 of .* candidate, outcomes and failure"):
            optimizer(path)

    def test_a_first_line_of_another_kind(self, path: Path) -> None:
        optimizer(path)
        for first in (b"3", b"null", b"[]", b'"search"', b"[[1, 2]]"):
            path.write_bytes(first + b"\n")
            with pytest.raises(
                CheckpointError, match=r"Expected .*search\.jsonl to be a checkpoint"
            ):
                optimizer(path)
        path.write_bytes(b'{"format": 1, "search": 3}\n')
        with pytest.raises(CheckpointError, match=r"search\.jsonl belongs to another search"):
            optimizer(path)

    @pytest.mark.parametrize("entry", [b"[" * 100_000, b"1" * 5000, b"", b"\xff"])
    def test_no_json(self, entry: bytes, path: Path) -> None:
        optimizer(path)
        path.write_bytes(path.read_bytes() + entry + b"\n")
        with pytest.raises(CheckpointError, match=r"Line 2 of .* is damaged: expected JSON"):
            optimizer(path)

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


class TestFiles:
    def test_a_relative_path_is_that_of_the_beginning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "inside").mkdir()
        monkeypatch.chdir(tmp_path)
        made = optimizer(Path("search.jsonl"))
        monkeypatch.chdir(tmp_path / "inside")
        made.tell(0, [1.0, 2.0])
        assert not list(Path().iterdir())
        assert optimizer(tmp_path / "search.jsonl").evaluations == made.evaluations

    def test_folders(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for wrong in (tmp_path, tmp_path / "no" / "search.jsonl", tmp_path / "file" / "search"):
            with pytest.raises(CheckpointError, match="path to a file in an existing folder"):
                optimizer(wrong)

    def test_a_file_that_is_gone_is_not_made_without_its_beginning(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        path, kept = folder / "search.jsonl", tmp_path / "kept.jsonl"
        made = optimizer(path)
        made.tell(0, [1.0, 2.0])
        for remove in (lambda: path.rename(kept), lambda: shutil.rmtree(folder)):
            remove()
            with pytest.raises(CheckpointError, match="was removed") as raised:
                made.tell(1, [3.0, 4.0])
            assert "candidate=1, outcomes=(3.0, 4.0)" in raised.value.__notes__[0]
            assert not path.exists()
            assert len(made.evaluations) == 1
        folder.mkdir()
        kept.rename(path)
        made.tell(1, [3.0, 4.0])
        assert optimizer(path).evaluations == made.evaluations
        assert len(made.evaluations) == 2

    @pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.EPERM])
    def test_a_folder_that_may_only_be_read(
        self, reason: int, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = optimizer(path)
        made.tell(0, [1.0, 2.0])
        content = path.read_bytes()

        def refuse(*_: Any) -> None:
            raise OSError(reason, os.strerror(reason))

        expected = f"Expected a folder in which files can be created, for {path}"
        with monkeypatch.context() as patch:
            patch.setattr("gp_distributions.bayesopt.records.locked", refuse)
            read = optimizer(path)
            assert read.evaluations == made.evaluations
            with pytest.raises(CheckpointError, match=expected):
                read.tell(1, [3.0, 4.0])
            with pytest.raises(CheckpointError, match=expected):
                read.run(lambda _: [1.0, 2.0], 2, progress=False)
            assert read.evaluations == made.evaluations
            assert path.read_bytes() == content
            for part in (content[:-5], content[:5], b""):  # another process may be writing
                path.write_bytes(part)
                with pytest.raises(CheckpointError, match=f"{expected}, which is not whole"):
                    optimizer(path)
                assert path.read_bytes() == part
            path.unlink()
            with pytest.raises(CheckpointError, match=expected):
                optimizer(path)
            assert not path.exists()
        path.write_bytes(content)
        read.tell(1, [3.0, 4.0])
        assert len(optimizer(path).evaluations) == 2

    def test_a_link_and_its_file_have_one_lock(self, path: Path, tmp_path: Path) -> None:
        linked = tmp_path / "links" / "other.jsonl"
        linked.parent.mkdir()
        linked.symlink_to(path)

        def opened(path: Path) -> Checkpoint:
            return Checkpoint(path, {}, outcomes=1, read=lambda candidate: candidate)

        first, second = opened(linked), opened(path)
        with first.alone(), pytest.raises(CheckpointError, match="in use"), second.alone():
            pass
        with second.alone(), pytest.raises(CheckpointError, match="in use"), first.alone():
            pass

    def test_two_searches_at_one_file(self, path: Path) -> None:
        first, second = optimizer(path), optimizer(path)
        first.tell(0, [1.0, 2.0])
        content = path.read_bytes()
        with pytest.raises(CheckpointError, match="another process has written to it"):
            second.tell(1, [3.0, 4.0])
        assert path.read_bytes() == content
        assert not second.evaluations
        first.tell(2, [1.0, 2.0])
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="another process has written to it"):
            first.tell(3, [1.0, 2.0])
        second = optimizer(path)
        second.tell(1, [3.0, 4.0])
        assert [e.candidate for e in optimizer(path).evaluations] == [0, 1]
