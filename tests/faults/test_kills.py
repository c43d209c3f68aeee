"""Fits, searches and saves that are killed at any moment: nothing is lost, and the end is the same."""

import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_tasks import Children

from gp_distributions import load

WRITING, ANYTHING, NEVER = "reading and writing", "anything", "never"
KILLED = -signal.SIGKILL, -signal.SIGPROF
# Beyond how many lines, or milliseconds, the first life does not go on.
FIRST = {WRITING: 100, ANYTHING: 30}


def result(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def work_on(children: Children, seed: int, when: str, *work: Any, result: Path) -> None:
    """Do some work again and again, killed at random moments, until it ends.

    Each life may go on for longer than the one before it, so that the work comes to its end.
    """
    rng = np.random.default_rng(seed)
    for lives in range(1, 50):
        number = int(rng.integers(1, FIRST[when] * 1.5**lives / 1.5))
        status = children.run(*work, when, number, result)
        if status == 0:
            assert lives > 1
            return
        assert status in KILLED
    raise AssertionError("The work never ended.")


@pytest.mark.parametrize("kind", ["mixed", "pool"])
def test_searches(kind: str, children: Children, tmp_path: Path) -> None:
    assert children.run("search", kind, None, NEVER, 0, tmp_path / "expected") == 0
    for when in (WRITING, ANYTHING):
        path, found = tmp_path / f"{when}.jsonl", tmp_path / when
        work_on(children, 0, when, "search", kind, path, result=found)
        assert result(found) == result(tmp_path / "expected")


def test_saves(children: Children, tmp_path: Path) -> None:
    """The file is the old one or the new one, and always complete."""
    path, rng = tmp_path / "model.gp", np.random.default_rng(2)
    assert children.run("saved", 0.0, path, NEVER, 0) == 0
    now, kills = 0.0, 0
    for number in range(1, 11):
        status = children.run("saved", float(number), path, WRITING, int(rng.integers(1, 300)))
        before, now = now, load(path).mean_module.constant.item()
        assert now == number if status == 0 else now in (before, number)
        assert status in (0, *KILLED)
        kills += status != 0
    assert 2 < kills < 10
    assert children.run("saved", 20.0, path, NEVER, 0) == 0
    assert load(path).mean_module.constant.item() == 20
