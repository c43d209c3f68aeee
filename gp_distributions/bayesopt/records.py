"""Evaluations of a search, kept in a file that is whole at every moment."""

from __future__ import annotations

import json
import logging
import math
import os
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

_LOGGER = logging.getLogger(__name__)
_FORMAT = 1
_FIELDS = {"candidate", "outcomes", "failure"}


class CheckpointError(ValueError):
    """A checkpoint is damaged, gone or in use, or belongs to another search."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: its candidate, and the outcomes or why there are none.

    Args:
        candidate: The candidate as plain data: an index, or nested lists of numbers.
        outcomes: The finite outcomes, or ``None`` if it failed.
        failure: What went wrong, or ``None``.
    """

    candidate: Any
    outcomes: tuple[float, ...] | None
    failure: str | None = None

    @property
    def key(self) -> str:
        """The candidate as text, by which candidates are told apart; floats are kept exactly."""
        return candidate_key(self.candidate)


def candidate_key(candidate: Any) -> str:
    """A candidate, as plain data, as text."""
    return json.dumps(candidate)


def read_outcomes(value: Any, count: int) -> tuple[float, ...] | str:
    """Outcomes as finite numbers, or what is wrong with them.

    Raises:
        ValueError: If there are not ``count`` of them.
    """
    flat = getattr(value, "tolist", lambda: value)()
    outcomes = tuple(float(v) for v in (flat if isinstance(flat, Sequence) else [flat]))
    if len(outcomes) != count:
        raise ValueError(f"Expected {count} outcomes of an evaluation, got {len(outcomes)}.")
    for index, outcome in enumerate(outcomes):
        if not math.isfinite(outcome):
            return f"outcome {index} is {outcome}"
    return outcomes


def read_numbers(value: Any, count: int) -> list[float]:
    """Numbers of a file, if they are a list of ``count`` finite ones.

    Raises:
        ValueError: If they are something else.
    """
    if not isinstance(value, list) or len(value) != count or not all(map(_is_finite, value)):
        raise ValueError(f"Expected a list of {count} finite numbers, got {reprlib.repr(value)}.")
    return [float(number) for number in value]


class Checkpoint:
    """A file of JSON lines: what the search is, then one line for every evaluation.

    A line is on the disk before :meth:`add` returns. A process that is killed while it writes leaves at
    most one line without an end, which is cut off when the file is opened again; a line that another
    process is writing at that moment looks the same. Only one search at a time may use a file: nothing
    is written to one whose size is not what this object left.

    Args:
        path: Of the file, which is made if there is none; its folder must exist. A relative one is
            taken from the folder that is the working one now.
        search: What the search is, as plain data. An existing file must be of the same one.
        outcomes: The number of outcomes of an evaluation.
        read: A function that gives a candidate of a line as plain data, or raises a ``ValueError`` if
            it is none.

    Raises:
        CheckpointError: If the file belongs to another search, a line of it is damaged, or it cannot be
            made.
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
        header = {"format": _FORMAT, "search": search}
        content = _content(self.path)
        end = content.rfind(b"\n") + 1
        if not end and not _line(header).startswith(content):
            raise CheckpointError(f"{self.path} is no checkpoint.")
        entries = list(_parse(self.path, content[:end]))
        if entries and entries[0] != json.loads(json.dumps(header)):
            raise CheckpointError(
                f"{self.path} belongs to another search: it says {entries[0]}, and this one is "
                f"{header}. Give another path, or the same settings."
            )
        self.evaluations: list[Evaluation] = []
        for number, entry in enumerate(entries[1:], start=2):
            try:
                self.evaluations.append(_evaluation(entry, outcomes, read))
            except ValueError as error:
                raise CheckpointError(
                    f"Line {number} of {self.path} is no evaluation of this search: {error} Put the "
                    "file back as it was, or delete the line to have its candidate evaluated anew."
                ) from error
        if end < len(content):
            _LOGGER.warning(
                "%s: an unfinished line of %d bytes is cut off.", path, len(content) - end
            )
            with self.path.open("r+b") as file:
                file.truncate(end)
        self._size = end
        if not entries:
            self._append(header)
            _sync_folder(self.path.parent)

    def add(self, evaluation: Evaluation) -> None:
        """Write an evaluation to the disk.

        Raises:
            CheckpointError: If the file is gone, or another process has written to it.
        """
        try:
            self._append(
                {
                    "candidate": evaluation.candidate,
                    "outcomes": evaluation.outcomes,
                    "failure": evaluation.failure,
                }
            )
        except Exception as error:
            error.add_note(f"Not recorded: {evaluation}.")
            raise
        self.evaluations.append(evaluation)

    def _append(self, entry: dict[str, Any]) -> None:
        line = _line(entry)
        with self._opened() as file:
            end = file.seek(0, os.SEEK_END)
            if end != self._size:
                raise CheckpointError(
                    f"Expected {self.path} to have the {self._size} bytes that this search left, got "
                    f"{end}: another process writes to it. Let one search at a time use a file; made "
                    "anew, a search goes on from all that the file holds."
                )
            try:
                written = file.write(line)
                if written != len(line):
                    raise OSError(
                        f"Only {written} of {len(line)} bytes of {self.path} were written."
                    )
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)  # a part of a line would damage those that follow
                raise
        self._size = end + len(line)

    def _opened(self) -> FileIO:
        try:
            return open(self.path, "ab", buffering=0, opener=_open_existing)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointError(
                f"{self.path} is gone since this search opened it. Put it back and tell the evaluation "
                "again, or make a new search and tell it all evaluations of this one."
            ) from error


def _content(path: Path) -> bytes:
    """What a file holds; if there is none, it is made."""
    try:
        if not path.exists():
            path.touch()
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise CheckpointError(
            f"Expected the path of a file in a folder that exists, got {path}: {error.strerror}. Make "
            "the folder, or give another path."
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
                f"Line {number} of {path} is damaged: expected JSON, got {reprlib.repr(line)}. Put the "
                "file back as it was, or delete the line if it is not the first."
            ) from error


def _evaluation(entry: Any, outcomes: int, read: Callable[[Any], Any]) -> Evaluation:
    """The evaluation of a line.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        raise ValueError(f"Expected candidate, outcomes and failure, got {reprlib.repr(entry)}.")
    found, failure = entry["outcomes"], entry["failure"]
    if (found is None) == (failure is None) or not isinstance(failure, str | None):
        raise ValueError(
            "Expected either outcomes or the text of a failure, and null for the other, got "
            f"{reprlib.repr(found)} and {reprlib.repr(failure)}."
        )
    numbers = None if found is None else tuple(read_numbers(found, outcomes))
    return Evaluation(read(entry["candidate"]), numbers, failure)


def _is_finite(value: Any) -> bool:
    """Whether a value of JSON is a number that a float can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _sync_folder(folder: Path) -> None:
    """Put the name of a new file on the disk, where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
