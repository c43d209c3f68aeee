"""Locks by which one process at a time uses a file or a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout


class InUseError(ValueError):
    """A checkpoint is in use by another process.

    Example:
        >>> from gp_distributions.locking import InUseError
        >>> issubclass(InUseError, ValueError)
        True
    """


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], name: str) -> Iterator[None]:
    """Hold a lock within a ``with`` block, in this process and by this block only.

    The operating system releases the lock if the process is killed. The file may stay.

    Args:
        path: Path to the file of the lock.
        name: What the lock protects, as the subject of the error.

    Raises:
        InUseError: If another process, or another block of this one, holds the lock.
        OSError: If the file cannot be created.
    """
    if not Path(path).parent.is_dir():  # which FileLock would make
        raise FileNotFoundError(f"Expected a path in an existing folder, got {path}.")
    try:
        lock = FileLock(path, timeout=0).acquire()
    except Timeout as error:
        raise InUseError(
            f"{name} is in use by another process, or in this one. Only one at a time may use it: wait "
            f"until that has ended, or use another path. (Lock: {path}.)"
        ) from error
    with lock:
        yield
