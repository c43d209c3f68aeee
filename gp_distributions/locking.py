"""Locks by which one process at a time uses a file or a folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
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
        >>> from gp_distributions import InUseError
        >>> issubclass(InUseError, ValueError)
        True
    """


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], name: str) -> Iterator[None]:
    """Hold a lock within a ``with`` block, in this process and by this block only.

    The lock is an advisory one (``flock``) on a file that says who holds it. The operating system
    releases it if the process is killed, also on network drives that support it; the file that stays is
    used again. Processes that were forked within the block share the lock.

    On Windows and on file systems without such locks, the existence of the file is the lock, and that of
    a process that was killed must be deleted by hand.

    Args:
        path: Path to the file, which is removed at the end of the block.
        name: What the lock protects, as the subject of the error.

    Raises:
        InUseError: If another process, or another block of this one, holds the lock.
        OSError: If the file cannot be created.
    """
    path = Path(path)
    file, by_system = _acquired(path, name)
    holder = {"process": os.getpid(), "host": socket.gethostname()}
    with file:
        try:
            with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                file.truncate(0)
                file.write(json.dumps(holder).encode())
            if not by_system:  # Windows does not remove open files
                file.close()
            yield
        finally:
            # Before the lock ends, so that nobody locks a file that is about to go.
            if os.getpid() == holder["process"]:
                with contextlib.suppress(OSError):
                    path.unlink()


def _acquired(path: Path, name: str) -> tuple[FileIO, bool]:
    """Return the open file of a lock, and whether the system holds the lock."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    while True:
        try:
            file, is_new = FileIO(os.open(path, flags | os.O_EXCL, 0o666), "r+"), True
        except FileExistsError:
            file, is_new = FileIO(os.open(path, flags, 0o666), "r+"), False
        try:
            by_system = _flocked(file)
            if by_system is None or not (by_system or is_new):
                raise InUseError(_message(path, name, _holder(file), by_system is not None))
            if not by_system or _is_at(file, path):
                return file, by_system
        except BaseException:
            file.close()
            raise
        file.close()  # the last holder has removed the file in the meantime


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


def _holder(file: FileIO) -> str:
    """Say who holds a lock, as its file tells."""
    try:
        found = json.loads(file.read(1000) or b"")
        process, host = int(found["process"]), str(found["host"])
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
    own = process == os.getpid() and host == socket.gethostname()
    return "this process" if own else f"process {process} on {host}"


def _message(path: Path, name: str, holder: str, by_hand: bool) -> str:
    way_out = (
        f"This file system has no locks: if that process has ended, delete {path}."
        if by_hand
        else "The lock ends with that process, and with those that it started."
    )
    return (
        f"{name} is in use by {holder}. Only one process at a time may use it: wait until it has ended, "
        f"or use another path. {way_out}"
    )
