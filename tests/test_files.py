"""Locks between processes."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fault_tasks import Children, sparse

from gp_distributions import fit
from gp_distributions.files import InUseError, locked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def held(children: Children, path: Path) -> int:
    """Let a child hold a lock; return the number of its process."""
    ready = path.with_name("ready")
    process = children.start("hold", path, ready)
    while not ready.exists():
        time.sleep(0.005)
    ready.unlink()
    return process


def test_one_at_a_time(path: Path) -> None:
    for _ in range(2):
        with (
            locked(path, "The file"),
            pytest.raises(InUseError, match=r"^The file is in use .* in this one\. Only one"),
            locked(path, "The file"),
        ):
            raise AssertionError
    with pytest.raises(KeyboardInterrupt), locked(path, "The file"):
        raise KeyboardInterrupt
    with locked(path, "The file"):
        pass
    with pytest.raises(FileNotFoundError), locked(path / "missing" / "lock", "The file"):
        raise AssertionError


def test_many_processes_take_turns(path: Path, tmp_path: Path, children: Children) -> None:
    """Two never hold the lock at once: each adds to a number that it reads first."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    workers = [children.start("add", path, counter, 8) for _ in range(3)]
    assert [children.end(worker) for worker in workers] == [0] * 3
    assert counter.read_text() == "24"


def test_fits_of_two_processes(tmp_path: Path, children: Children) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    process = held(children, folder / ".lock")
    model = sparse(str(folder))
    options: dict[str, Any] = {"restarts": 0, "progress": False}
    with pytest.raises(InUseError, match=f"{folder} is in use by another process"):
        fit(model, checkpoint=folder, **options)
    os.kill(process, signal.SIGKILL)
    children.end(process)
    fit(model, checkpoint=folder, **options)
    with locked(folder / ".lock", "The checkpoint"):  # another thread of this process
        with pytest.raises(InUseError, match="in this one"):
            fit(model, checkpoint=folder, **options)
        fit(model, checkpoint=tmp_path / "other", **options)
