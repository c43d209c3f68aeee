"""Intermediate results in a folder, each written whole or not at all, and digests of their origin."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.files import locked, read_tensors, write_tensors
from gp_distributions.rows.fingerprint import fingerprint

_KIND = "a checkpoint of a fit"
# Share of the time of a pass that may go into writing.
_SHARE = 0.05


@contextlib.contextmanager
def claimed(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let no other process use the checkpoints in a folder within a ``with`` block.

    Args:
        folder: Path to the folder, which is created if it does not exist.

    Raises:
        InUseError: If another process, or another fit of this one, uses the folder.
        FileExistsError: If ``folder`` is a file.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with locked(Path(folder) / ".lock", f"The checkpoint {folder}"):
        for left in Path(folder).glob(".*.unfinished"):  # by a process that was killed
            left.unlink()
        yield


class Checkpoint:
    """A file with the result of the pieces done so far, and a digest of what it was computed from.

    Args:
        folder: Path to the folder, which exists; ``None`` for a checkpoint that keeps nothing.
        name: Name of the file without its ending.
        digest: Digest of the model and the data.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, name: str, digest: str) -> None:
        self.path = None if folder is None else Path(folder) / f"{name}.checkpoint"
        self.digest = digest
        self._due = 0.0

    def read(self) -> tuple[int, dict[str, Any]]:
        """Return the number of pieces done and the values written with it; zero if there is no file.

        Tensors are on the CPU.

        Raises:
            ValueError: If the file belongs to another model or other data, or is not a checkpoint.
        """
        if self.path is None or not self.path.exists():
            return 0, {}
        try:
            header, tensors = read_tensors(self.path, _KIND)
            values = dict(zip(header["tensors"], tensors, strict=True)) | header["numbers"]
            digest, done = header["digest"], int(header["done"])
        except Exception as error:
            raise ValueError(
                f"Cannot read the checkpoint {self.path}: {error} Delete all files *.checkpoint in "
                f"{self.path.parent} to start again."
            ) from error
        if digest != self.digest:
            raise ValueError(
                f"Expected a checkpoint of this model and these data, got {self.path}, which belongs to "
                "others: options, files or the seed have changed, or this model has been fitted since. "
                "Make a fitted model anew to find it as it was, delete all files *.checkpoint in "
                f"{self.path.parent} to start again, or pass another folder."
            )
        return done, values

    def write(self, done: int, values: dict[str, Any], *, now: bool = False) -> None:
        """Write the number of pieces done and values: tensors and plain numbers.

        Unless ``now``, nothing is written if the last time was so short ago that writing would slow
        the pass down.

        Raises:
            OSError: If writing fails, as on a full disk. The file is then as it was before.
        """
        if self.path is None or (not now and time.monotonic() < self._due):
            return
        start = time.monotonic()
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        header = {
            "digest": self.digest,
            "done": done,
            "tensors": list(tensors),
            "numbers": {name: value for name, value in values.items() if name not in tensors},
        }
        write_tensors(self.path, _KIND, header, list(tensors.values()))
        end = time.monotonic()
        self._due = end + (end - start) / _SHARE


def digest(*values: Any) -> str:
    """Return a digest of numbers, strings, arrays, tensors, modules and collections of them.

    It is the same in every process. Functions and classes enter by their names, and other objects by
    what pickle would write of them.

    Raises:
        TypeError: If an object cannot be pickled.
    """
    return hashlib.sha256(repr(_plain(values)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return what ``repr`` writes alike in every process."""
    if isinstance(value, torch.nn.Module):
        return _plain(fingerprint(value))
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return str(value.dtype), tuple(value.shape), _plain(content.numpy())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, str | int | float | bytes | None):
        return value
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, list | tuple | np.ndarray):
        return type(value).__name__, *map(_plain, value)
    if isinstance(value, set | frozenset):
        return "set", *sorted(map(digest, value))
    if isinstance(value, dict):
        return "dict", *sorted((digest(key), digest(item)) for key, item in value.items())
    found = value.__reduce_ex__(2)
    return _plain([list(part) if i > 2 and part else part for i, part in enumerate(found)])
