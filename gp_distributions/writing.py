"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_POSIX = os.name == "posix"
if _POSIX:
    import fcntl


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block ends without an error.

    The content goes to ``.NAME.unfinished`` beside the target ``NAME``, which it then replaces in one
    step. If a process is killed, the next write to the same path reuses its unfinished file. An
    advisory lock on that file makes a second writer wait for the first; the operating system releases
    the lock of a killed process. If two processes write to the same path, the last to finish wins.
    Systems without such locks (Windows, some network drives) do not protect two simultaneous writers
    from each other.

    Args:
        path: Path to the file. A symbolic link is followed. The new file has the permissions of the one
            that it replaces.

    Yields:
        The unfinished file, which is empty.

    Raises:
        FileNotFoundError: If the folder of the path does not exist.
        OSError: If the path exists and is not a regular file, or if writing fails. An existing file is
            then unchanged, and the message names the path.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Expected a path in an existing folder, got {path}. Create the folder first."
        )
    if target.exists() and not target.is_file():
        raise OSError(
            f"Expected the path of a regular file, but {path} is not one. Nothing was written."
        )
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with _open_alone(unfinished) as file:
            try:
                _take_permissions(file, target)
                yield file
                file.flush()
                os.fsync(file.fileno())
                if _POSIX:  # before the lock is released
                    unfinished.replace(target)
                    sync_folder(target.parent)
            except BaseException:
                with suppress(OSError):
                    unfinished.unlink()
                raise
        if not _POSIX:  # Windows does not rename open files
            unfinished.replace(target)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        reason = f"{error.strerror}: nothing was written, and an existing file stays as it was"
        raise OSError(error.errno, reason, str(path)) from error


def _take_permissions(file: BinaryIO, target: Path) -> None:
    """Give an empty file the permissions of the file that it will replace, if there is one."""
    if _POSIX and target.exists():
        with suppress(OSError):  # on some drives all files have the same permissions
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))


def sync_folder(folder: Path) -> None:
    """Write the names of the files in a folder to the disk, on systems that can open folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with suppress(OSError):  # some network drives cannot do it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_alone(path: Path) -> BinaryIO:
    """Open an empty file for writing; where the system has advisory locks, lock out other writers."""
    while _POSIX:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "wb")
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate()
                return file
        file.close()  # another process has renamed or removed the file in the meantime
    return path.open("wb")
