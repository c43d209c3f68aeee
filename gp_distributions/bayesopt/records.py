"""The evaluations of a search, and the checkpoint file that keeps them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout


class CheckpointError(ValueError):
    """A checkpoint file is damaged, in use, or belongs to another search."""


@dataclass(frozen=True)
class Evaluation:
    """A candidate with its outcomes, or with the reason why it has none.

    Args:
        candidate: The candidate as plain data: an index, a list of numbers, or a dictionary.
        outcomes: The outcomes, which are finite, or ``None`` if the evaluation failed.
        failure: The reason for the failure, or ``None`` if the evaluation succeeded.

    Example:
        >>> from gp_distributions import PointClouds, PoolSearch, ShapeOptimizer
        >>> optimizer = ShapeOptimizer(PoolSearch(PointClouds([[[0.0]], [[1.0]]])))
        >>> optimizer.tell(1, 0.5)
        >>> optimizer.evaluations
        (Evaluation(candidate=1, outcomes=(0.5,), failure=None),)
    """

    candidate: Any
    outcomes: tuple[float, ...] | None
    failure: str | None = None

    @property
    def key(self) -> str:
        """String that identifies the candidate, with floats written at full precision."""
        return candidate_key(self.candidate)


def candidate_key(candidate: Any) -> str:
    """Returns the text that identifies a candidate, which is given as plain data."""
    return json.dumps(candidate)


def read_outcomes(value: Any, count: int) -> tuple[float, ...]:
    """Returns outcomes as floats.

    Raises:
        ValueError: If the number of outcomes is not ``count``, or one is not a number.
    """
    try:
        found = torch.as_tensor(value, dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"Expected a number for each outcome, got {value!r:.80}. If the evaluation failed, call "
            "tell_failure(candidate, reason)."
        ) from error
    if len(found) != count:
        raise ValueError(
            f"Expected the number of outcomes (objectives, then constraints) to be {count}, got "
            f"{len(found)}."
        )
    return tuple(found)


class Checkpoint:
    """A file of JSON lines: a header that describes the search, then one line per evaluation.

    A line is on the disk before :meth:`add` returns. If the process is killed while it writes, it may
    leave an unfinished line, which is removed when the file is next opened. A line that another process
    is writing at that moment looks the same, so the file is locked while it is opened, while a line is
    written, and in :meth:`alone`. If the size has changed since this object last wrote to it,
    :meth:`add` writes nothing and raises an error.

    After an interrupt, :attr:`evaluations` and the file agree: both hold an evaluation, or neither.

    Args:
        path: Path to the file, which is created if it does not exist; its folder must exist. A relative
            path refers to the current working directory at construction, and a link to its file.
        search: Description of the search, as plain data. An existing file must contain the same
            description.
        read: A function that makes an evaluation from the entries of a line of the file.

    Attributes:
        path: Absolute path to the file.
        evaluations: The evaluations in the file.

    Raises:
        CheckpointError: If the file belongs to another search, has a damaged line, or is in use by
            another process.
        OSError: If the file or its lock cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        search: dict[str, Any],
        *,
        read: Callable[..., Evaluation],
    ) -> None:
        self.path = Path(path).resolve()
        self.path.touch()
        lock = self.path.with_name(f".{self.path.name}.lock")
        self._lock = FileLock(lock, timeout=0, thread_local=False)
        self.evaluations: list[Evaluation] = []
        header = json.dumps({"format": 1, "search": search}).encode() + b"\n"
        with self.alone(), open(self.path, "a+b", buffering=0) as file:
            file.seek(0)
            first, *lines = file.read().splitlines(keepends=True) or [b""]
            if not header.startswith(first):
                raise CheckpointError(
                    f"{self.path} belongs to another search, or is no checkpoint: expected a file that "
                    f"begins with {header!r:.500}, got {first!r:.500}. Use another path, or the same "
                    "settings."
                )
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()
            for number, line in enumerate(lines, start=2):
                try:
                    self.evaluations.append(read(**json.loads(line)))
                except Exception as error:
                    raise CheckpointError(
                        f"Line {number} of {self.path} is not an evaluation of this search: {error!r}. "
                        "Restore the file, or delete the line to evaluate its candidate again."
                    ) from error
            self._size = sum(map(len, lines), len(header))
            file.truncate(self._size if first == header else 0)
            if first != header:
                _write(file, header)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process use the file within a ``with`` block; blocks may be nested.

        Raises:
            CheckpointError: If another process uses it.
        """
        # An interrupt right after the lock is acquired must release it as well.
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._lock)
            except Timeout as error:
                raise CheckpointError(
                    f"{self.path} is in use. Only one search at a time may use it: wait until the other "
                    "has ended, or use another path. To look at a search that runs, copy its file."
                ) from error
            yield

    def add(self, evaluation: Evaluation) -> None:
        """Write an evaluation to the disk.

        Raises:
            CheckpointError: If the file is in use by another process, or another process has written to
                it.
            OSError: If the file is missing, or writing fails, as on a full disk. The file is as it was
                before.
        """
        line = json.dumps(vars(evaluation), allow_nan=False).encode() + b"\n"
        with self.alone(), open(self.path, "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end != self._size:
                raise CheckpointError(
                    f"Expected {self.path} to be {self._size} bytes long, as this search last wrote it, "
                    f"got {end} bytes: another process has written to it. A new ShapeOptimizer with "
                    "this path resumes from all records."
                )
            count = len(self.evaluations)
            try:
                _write(file, line)
                self.evaluations.append(evaluation)
                self._size = end + len(line)
            except BaseException as error:
                del self.evaluations[count:]
                self._size = end
                file.truncate(end)  # an unfinished line would corrupt the next line
                if isinstance(error, OSError):
                    reason = f"{error.strerror or error}: {evaluation} was not recorded"
                    raise OSError(error.errno, reason, str(self.path)) from error
                raise


def _write(file: FileIO, line: bytes) -> None:
    if file.write(line) != len(line):
        raise OSError("only a part was written")
    os.fsync(file.fileno())
