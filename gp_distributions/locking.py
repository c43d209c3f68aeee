"""Locks by which one process at a time uses a file or a folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# What flock raises on file systems without locks.
_WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


class InUseError(ValueError):
    """A checkpoint is in use by another process, which the message names.

    Example:
        >>> from gp_distributions.locking import InUseError
        >>> issubclass(InUseError, ValueError)
        True
    """


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], name: str) -> Iterator[None]:
    """Hold a lock within a ``with`` block, in this process and by this block only.

    The lock is an advisory one (``flock``) on a file that says who holds it. The operating system
    releases it if the process is killed, also on network drives that support it; the file that stays is
    used again. Processes that were forked within the block share the lock.

    On Windows and on file systems without such locks, the existence of the file is the lock. If its
    process was killed, the next one on the same host removes the file. It must be deleted by hand on
    Windows, from another host or container, and if the process was killed before it had written its
    number, or if that number belongs to another process by now.

    Args:
        path: Path to the file, which is removed at the end of the block.
        name: What the lock protects, as the subject of the error.

    Raises:
        InUseError: If another process, or another block of this one, holds the lock.
        OSError: If the file cannot be created.
    """
    path = Path(path)
    file, by_system = _acquired(path, name)
    holder = _this_process()
    with file:
        try:
            with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                file.truncate(0)
                file.write(json.dumps(asdict(holder)).encode())
            if not by_system:  # Windows does not remove open files
                file.close()
            yield
        finally:
            # Before the lock ends, so that nobody locks a file that is about to go.
            if os.getpid() == holder.process:
                _remove(path, tries=1 if by_system else 100)


def _acquired(path: Path, name: str) -> tuple[FileIO, bool]:
    """Return the open file of a lock, and whether the system holds the lock."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
    while True:
        try:
            file, is_new = FileIO(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), "r+"), True
        except FileExistsError:
            try:
                file, is_new = FileIO(os.open(path, flags), "r+"), False
            except FileNotFoundError:  # the last holder has removed the file in the meantime
                continue
        try:
            by_system = _flocked(file)
            if is_new and by_system is False:
                return file, False
            if by_system and _is_at(file, path):
                return file, True
            holder = None if by_system else _holder(file)
        except BaseException:
            file.close()
            raise
        file.close()  # Windows does not remove open files
        if by_system:  # the last holder has removed the file in the meantime
            continue
        if by_system is None or not _has_ended(holder) or not _freed(path):
            raise InUseError(_message(path, name, holder, by_system is not None))


def _flocked(file: FileIO) -> bool | None:
    """Lock a file; return None if another process has done so, and False if there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return False
        raise
    return True


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class _Holder:
    """A process that holds a lock, with its host and the namespace of its number, if there is one."""

    process: int
    host: str
    namespace: int | None


def _this_process() -> _Holder:
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino  # containers may share the name of a host
    except OSError:
        namespace = None
    return _Holder(os.getpid(), socket.gethostname(), namespace)


def _holder(file: FileIO) -> _Holder | None:
    """Return who holds a lock, as its file tells."""
    try:
        found = json.loads(file.read(1000) or b"")
        return _Holder(int(found["process"]), str(found["host"]), found.get("namespace"))
    except (ValueError, KeyError, TypeError, OSError, OverflowError):
        return None


def _has_ended(holder: _Holder | None) -> bool:
    """Whether it is certain that the holder of a lock does not exist any more."""
    if sys.platform == "win32":  # where os.kill ends a process whatever the signal
        return False
    own = _this_process()
    if holder is None or holder.process <= 0:
        return False
    if (holder.host, holder.namespace) != (own.host, own.namespace):
        return False
    try:
        os.kill(holder.process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _freed(path: Path) -> bool:
    """Remove the file of a process that has ended; return False if another process does so."""
    # Of two processes that find the same file, the slower one must not remove that of the faster one.
    guard = _guard(path)
    try:
        os.close(os.open(guard, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    try:
        with contextlib.suppress(FileNotFoundError):
            with FileIO(path, "r") as file:
                ended = _has_ended(_holder(file))
            if ended:
                path.unlink()
    finally:
        guard.unlink()
    return True


def _guard(path: Path) -> Path:
    """Return the file that a process holds while it removes the lock of another one."""
    return path.with_name(f"{path.name}.removal")


def _remove(path: Path, tries: int) -> None:
    """Remove a file, which fails on Windows while another process reads it."""
    for _ in range(tries - 1):
        try:
            path.unlink()
        except PermissionError:
            time.sleep(0.01)
        except OSError:
            return
        else:
            return
    with contextlib.suppress(OSError):
        path.unlink()


def _message(path: Path, name: str, holder: _Holder | None, by_hand: bool) -> str:
    if holder is None:
        who = "another process"
    elif holder == _this_process():
        who = "this process"
    else:
        who = f"process {holder.process} on {holder.host}"
    left = " and ".join(str(file) for file in (path, _guard(path)) if file.exists()) or str(path)
    way_out = (
        f"This file system has no locks: if that process has ended, delete {left}."
        if by_hand
        else "The lock ends with that process, and with those that it started."
    )
    return (
        f"{name} is in use by {who}. Only one process at a time may use it: wait until it has ended, "
        f"or use another path. {way_out}"
    )
