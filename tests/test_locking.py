"""Locks between processes, with and without the help of the operating system."""

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fault_tasks import Children, sparse

from gp_distributions import fit, locking
from gp_distributions.locking import InUseError, locked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture(params=["flock", "no flock", "no fcntl"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Systems with locks, network drives without them, and Windows."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if request.param == "no flock":
        monkeypatch.setattr(locking.fcntl, "flock", refuse)
    if request.param == "no fcntl":
        monkeypatch.setattr(locking, "fcntl", None)
    return request.param


def held(children: Children, path: Path) -> int:
    """Let a child hold a lock; return the number of its process."""
    ready = path.with_name("ready")
    process = children.start("hold", path, ready)
    while not ready.exists():
        time.sleep(0.005)
    ready.unlink()
    return process


def test_one_at_a_time(path: Path, system: str) -> None:
    for _ in range(2):
        with locked(path, "The file"):
            with (
                pytest.raises(InUseError, match=r"^The file is in use by this process\. Only one"),
                locked(path, "The file"),
            ):
                raise AssertionError
            assert path.exists()
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), locked(path, "The file"):
        raise KeyboardInterrupt
    assert not path.exists()


def test_the_holder_is_named_and_its_death_ends_the_lock(path: Path, children: Children) -> None:
    process = held(children, path)
    for _ in range(2):
        with pytest.raises(InUseError, match=f"in use by process {process} on "):
            locked(path, "The file").__enter__()
    os.kill(process, signal.SIGKILL)
    assert children.end(process) == -signal.SIGKILL
    assert path.exists()
    with locked(path, "The file"):
        assert json.loads(path.read_text())["process"] == os.getpid()
    assert not path.exists()


def dead(children: Children, path: Path) -> dict[str, Any]:
    """Return what a process that was killed has left in a lock."""
    process = held(children, path)
    os.kill(process, signal.SIGKILL)
    children.end(process)
    return dict(json.loads(path.read_text()))


def test_without_locks_the_death_of_the_holder_ends_the_lock(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "fcntl", None)
    process = held(children, path)
    with pytest.raises(InUseError, match=f"in use by process {process} on "):
        locked(path, "The file").__enter__()
    os.kill(process, signal.SIGKILL)
    children.end(process)
    with locked(path, "The file"):
        assert json.loads(path.read_text())["process"] == os.getpid()
        assert list(path.parent.iterdir()) == [path]
    assert not path.exists()


@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"namespace": 1}, {"process": 0}, {"process": 10**30}]
)
def test_without_locks_only_the_certainly_dead_are_removed(
    change: dict[str, Any], path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "fcntl", None)
    path.write_text(json.dumps(dead(children, path) | change))
    with pytest.raises(InUseError, match=f"delete {path}"), locked(path, "The file"):
        raise AssertionError
    assert path.exists()


def test_windows_sends_no_signal(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(children, path)
    with monkeypatch.context() as patch:
        patch.setattr(locking, "fcntl", None)
        patch.setattr(sys, "platform", "win32")
        patch.setattr(os, "kill", None)
        with pytest.raises(InUseError, match=f"delete {path}"):
            locked(path, "The file").__enter__()


def test_without_locks_one_process_follows_the_dead(
    path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A faster one takes the lock after a slower one has seen that its holder is dead."""
    monkeypatch.setattr(locking, "fcntl", None)
    left = dead(children, path)
    original, calls = locking._has_ended, []

    def slow(holder: Any) -> bool:
        ended = original(holder)
        calls.append(ended)
        if len(calls) == 1:
            path.write_text(json.dumps(left | {"process": os.getppid()}))
        return ended

    with monkeypatch.context() as patch:
        patch.setattr(locking, "_has_ended", slow)
        with pytest.raises(InUseError, match=f"in use by process {os.getppid()} on "):
            locked(path, "The file").__enter__()
    assert calls == [True, False, False]
    assert list(path.parent.iterdir()) == [path]
    path.write_text(json.dumps(left))
    guard = path.with_name("lock.removal")
    guard.touch()  # another process is about to remove the file
    with pytest.raises(InUseError, match=f"delete {path} and {guard}\\."), locked(path, "The file"):
        raise AssertionError
    assert path.exists()


def test_a_holder_that_ends_while_its_file_is_opened(
    path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()
    original = os.open

    def late(file: Any, flags: int, *mode: int) -> int:
        if not flags & os.O_EXCL:
            path.unlink()
        return original(file, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", late)
        with locked(path, "The file"):
            assert path.exists()
    assert not path.exists()


def test_a_file_that_another_process_reads_on_windows_is_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "fcntl", None)
    original, calls = Path.unlink, []

    def busy(self: Path, *arguments: Any, **options: Any) -> None:
        calls.append(self)
        if len(calls) < 4:
            raise PermissionError
        original(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", busy)
        with locked(path, "The file"):
            pass
    assert calls == [path] * 4
    assert not path.exists()


def test_without_locks_the_dead_of_other_hosts_are_removed_by_hand(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "fcntl", None)
    path.write_text(json.dumps({"process": 12345, "host": "elsewhere"}))
    expected = f"in use by process 12345 on elsewhere.* has no locks.* delete {path}"
    with pytest.raises(InUseError, match=expected), locked(path, "The file"):
        raise AssertionError
    assert path.exists()
    path.unlink()
    with locked(path, "The file"):
        pass


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"process": null, "host": 1}', b"\xff"])
def test_holders_of_whom_nothing_is_known(
    content: bytes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(content)
    with locked(path, "The file"):  # nobody holds it
        pass
    path.write_bytes(content)
    monkeypatch.setattr(locking, "fcntl", None)
    with pytest.raises(InUseError, match="in use by another process"), locked(path, "The file"):
        raise AssertionError


def test_many_processes_take_turns(path: Path, tmp_path: Path, children: Children) -> None:
    """Two never hold the lock at once: each adds to a number that it reads first."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    workers = [children.start("add", path, counter, 20) for _ in range(4)]
    assert [children.end(worker) for worker in workers] == [0] * 4
    assert counter.read_text() == "80"
    assert not path.exists()


def test_fits_of_two_processes(tmp_path: Path, children: Children) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    process = held(children, folder / ".lock")
    model = sparse(str(folder))
    options: dict[str, Any] = {"restarts": 0, "progress": False}
    with pytest.raises(InUseError, match=f"{folder} is in use by process {process} on"):
        fit(model, checkpoint=folder, **options)
    os.kill(process, signal.SIGKILL)
    children.end(process)
    fit(model, checkpoint=folder, **options)
    assert {file.suffix for file in folder.iterdir()} == {".checkpoint"}
    with locked(folder / ".lock", "The checkpoint"):  # another thread of this process
        with pytest.raises(InUseError, match="in use by this process"):
            fit(model, checkpoint=folder, **options)
        fit(model, checkpoint=tmp_path / "other", **options)
