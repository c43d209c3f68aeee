"""The evaluations of a search, and the checkpoint file that keeps them."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from gp_distributions.locking import InUseError, locked
from gp_distributions.writing import sync_folder

_LOGGER = logging.getLogger(__name__)
_FORMAT = 1
# What creating a file raises in a folder that may only be read.
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


class CheckpointError(ValueError):
    """A checkpoint file is damaged, missing, in use, or belongs to another search."""


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


def read_outcomes(value: Any, count: int) -> tuple[float, ...] | str:
    """Returns outcomes as floats, or a message that names the first one that is not finite.

    Raises:
        ValueError: If the number of outcomes is not ``count``, or one is not a number.
    """
    flat = getattr(value, "tolist", lambda: value)()
    if value is None:
        raise ValueError(
            "Expected outcomes, got None. If the evaluation failed, call tell_failure(candidate, "
            "reason)."
        )
    entries = flat if isinstance(flat, Sequence) and not isinstance(flat, str) else [flat]
    for entry in entries:
        if isinstance(entry, str) or not hasattr(type(entry), "__float__"):
            raise ValueError(f"Expected a number for each outcome, got {reprlib.repr(entry)}.")
    outcomes = tuple(map(float, entries))
    if len(outcomes) != count:
        raise ValueError(
            f"Expected the number of outcomes (objectives, then constraints) to be {count}, got "
            f"{len(outcomes)}."
        )
    for index, outcome in enumerate(outcomes):
        if not math.isfinite(outcome):
            return f"outcome {index} is {outcome}"
    return outcomes


def _difference(found: dict[str, Any], header: dict[str, Any]) -> str:
    """Describe how the header of a file differs from that of a search."""
    old, new = (
        {**entry, **search} if isinstance(search := entry.get("search"), dict) else entry
        for entry in (found, header)
    )
    return ", ".join(
        f"{key}={reprlib.repr(old.get(key))} instead of {reprlib.repr(new.get(key))}"
        for key in {**old, **new}
        if key != "search" and old.get(key) != new.get(key)
    )


class Checkpoint:
    """A file of JSON lines: a header that describes the search, then one line per evaluation.

    A line is on the disk before :meth:`add` returns. If the process is killed while it writes, it may
    leave an unfinished line, which is removed when the file is next opened. A line that another process
    is writing at that moment looks the same, so only one search at a time may use a file: it is locked
    while it is opened, while a line is written, and in :meth:`alone`. In a folder that may only be read,
    a file with whole lines is opened without a lock, and :meth:`add` raises an error. If the size has
    changed since this object last wrote to it, :meth:`add` writes nothing and raises an error.

    After an interrupt, :attr:`evaluations` and the file agree: both hold an evaluation, or neither.

    Args:
        path: Path to the file, which is created if it does not exist; its folder must exist. A relative
            path refers to the current working directory at construction.
        search: Description of the search, as plain data. An existing file must contain the same
            description.
        outcomes: Number of outcomes per evaluation.
        read: A function that converts the candidate in a line of the file to plain data, or raises an
            error if the candidate is not valid.

    Attributes:
        path: Absolute path to the file.
        evaluations: The evaluations in the file.

    Raises:
        CheckpointError: If the file belongs to another search, has a damaged line, is in use by another
            process, or cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        search: dict[str, Any],
        *,
        outcomes: int,
        read: Callable[[Any], Any],
    ) -> None:
        self.path = Path(path).absolute()
        self._header = {"format": _FORMAT, "search": search}
        self._claims = 0
        self.evaluations: list[Evaluation] = []
        with self._alone(reading=True) as unlocked:
            self._read(outcomes, read, unlocked)

    def _read(self, outcomes: int, read: Callable[[Any], Any], unlocked: OSError | None) -> None:
        """Read all evaluations; cut off an unfinished line; write the header if it is missing."""
        header, content = self._header, _content(self.path)
        end = content.rfind(b"\n") + 1
        if not end and not _line(header).startswith(content):
            raise CheckpointError(f"Expected {self.path} to be a checkpoint, got another file.")
        entries = list(_parse(self.path, content[:end]))
        if entries and not isinstance(entries[0], dict):
            raise CheckpointError(f"Expected {self.path} to be a checkpoint, got another file.")
        if entries and entries[0] != json.loads(json.dumps(header)):
            raise CheckpointError(
                f"{self.path} belongs to another search, with {_difference(entries[0], header)}. Use "
                "another path, or the same settings."
            )
        for number, entry in enumerate(entries[1:], start=2):
            try:
                self.evaluations.append(_evaluation(entry, outcomes, read))
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise CheckpointError(
                    f"Line {number} of {self.path} is not an evaluation of this search: {error} Restore "
                    "the file, or delete the line to evaluate its candidate again."
                ) from error
        unfinished = len(content) - end
        if unlocked is not None and (unfinished or not entries):
            raise self._no_lock(unlocked, ", which is not whole") from unlocked
        if unfinished:
            _LOGGER.warning(
                "Cutting off an unfinished line of %d bytes in %s.", unfinished, self.path
            )
            with self.path.open("r+b") as file:
                file.truncate(end)
        self._size = end
        if not entries:
            self._append(header)
            sync_folder(self.path.parent)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process use the file within a ``with`` block; blocks may be nested.

        Raises:
            CheckpointError: If another process uses it, or its folder may only be read.
        """
        with self._alone():
            yield

    @contextlib.contextmanager
    def _alone(self, *, reading: bool = False) -> Iterator[OSError | None]:
        """Hold the lock; or, to read an existing file, yield why there can be none."""
        if self._claims:
            yield None
            return
        unlocked = None
        file = Path(os.path.realpath(self.path))  # one lock, however many links there are
        lock = file.with_name(f".{file.name}.lock")
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(lock, f"The checkpoint {self.path}"))
            except InUseError as error:
                raise CheckpointError(str(error)) from error
            except (FileNotFoundError, NotADirectoryError):
                pass  # What is done to the file itself says so better.
            except OSError as error:
                if not (reading and error.errno in _READ_ONLY and os.path.exists(self.path)):
                    raise self._no_lock(error) from error
                unlocked = error
            self._claims += 1
            try:
                yield unlocked
            finally:
                self._claims -= 1

    def _no_lock(self, error: OSError, which: str = "") -> CheckpointError:
        return CheckpointError(
            f"Expected a folder in which files can be created, for {self.path}{which}, but: {error}."
        )

    def add(self, evaluation: Evaluation) -> None:
        """Write an evaluation to the disk.

        Raises:
            CheckpointError: If the file is missing or in use by another process, another process has
                written to it, or its folder may only be read.
            OSError: If writing fails, as on a full disk. The file is as it was before.
        """
        try:
            with self.alone():
                self._append(vars(evaluation), evaluation)
        except BaseException as error:
            if not (self.evaluations and self.evaluations[-1] is evaluation):
                error.add_note(f"This evaluation was not recorded: {evaluation}.")
            raise

    def _append(self, entry: dict[str, Any], *evaluations: Evaluation) -> None:
        line = _line(entry)
        with self._opened() as file:
            end = file.seek(0, os.SEEK_END)
            if end != self._size:
                raise CheckpointError(
                    f"Expected {self.path} to be {self._size} bytes long, as this search last wrote it, "
                    f"got {end} bytes: another process has written to it. Use the file in only one "
                    "search at a time; a new ShapeOptimizer with this path resumes from all records."
                )
            count = len(self.evaluations)
            try:
                written = file.write(line)
                if written != len(line):
                    raise OSError(f"wrote {written} of {len(line)} bytes")
                os.fsync(file.fileno())
                self.evaluations.extend(evaluations)
                self._size = end + len(line)
            except BaseException as error:
                del self.evaluations[count:]
                self._size = end
                file.truncate(end)  # an unfinished line would corrupt the next line
                if isinstance(error, OSError):
                    raise OSError(
                        error.errno,
                        f"Writing failed, and nothing was recorded: {error}",
                        str(self.path),
                    ) from error
                raise

    def _opened(self) -> FileIO:
        try:
            return open(self.path, "ab", buffering=0, opener=_open_existing)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointError(
                f"Expected {self.path} to exist, but it was removed after this search opened it. "
                "Restore it and tell the evaluation again, or tell all evaluations to a new one."
            ) from error


def _content(path: Path) -> bytes:
    """Returns the content of a file; creates an empty file if it does not exist."""
    try:
        if not path.exists():
            path.touch()
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"Expected the path to a file in an existing folder, got {path}: {error.strerror}. Create "
            "the folder, or use another path."
        ) from error


def _open_existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


def _line(entry: dict[str, Any]) -> bytes:
    return (json.dumps(entry, allow_nan=False) + "\n").encode()


def _parse(path: Path, content: bytes) -> Iterator[Any]:
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"Line {number} of {path} is damaged: expected JSON, got {reprlib.repr(line)}. Restore "
                "the file, or delete the line unless it is the first."
            ) from error


def _evaluation(entry: Any, outcomes: int, read: Callable[[Any], Any]) -> Evaluation:
    """Converts a decoded line of the file to an evaluation.

    Raises:
        ValueError: If the line does not describe an evaluation.
    """
    if not isinstance(entry, dict) or entry.keys() != Evaluation.__annotations__.keys():
        raise ValueError(f"Expected candidate, outcomes and failure, got {reprlib.repr(entry)}.")
    found, failure = entry["outcomes"], entry["failure"]
    if (found is None) == (failure is None) or not isinstance(failure, str | None):
        raise ValueError(
            "Expected either outcomes or a failure as text, and null for the other, got "
            f"{reprlib.repr(found)} and {reprlib.repr(failure)}."
        )
    numbers = None if found is None else read_outcomes(found, outcomes)
    if isinstance(numbers, str):
        raise ValueError(f"Expected finite outcomes, but {numbers}.")
    return Evaluation(read(entry["candidate"]), numbers, failure)
