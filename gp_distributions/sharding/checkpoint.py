"""Intermediate results in a folder, each written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from gp_distributions.locking import locked
from gp_distributions.writing import read_tensors, write_tensors

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
        ValueError: If ``folder`` is a file.
    """
    _make(Path(folder))
    with locked(Path(folder) / ".lock", f"The checkpoint {folder}"):
        for left in Path(folder).glob(".*.unfinished"):  # by a process that was killed
            left.unlink()
        yield


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ValueError(f"Expected checkpoint to be a folder, got the file {folder}.") from error


class Checkpoint:
    """A file with the result of the pieces done so far, and a digest of what it was computed from.

    Args:
        folder: Path to the folder, which is created if it does not exist.
        name: Name of the file without its ending.
        digest: Digest of the model and the data.

    Raises:
        ValueError: If ``folder`` is a file.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str, digest: str) -> None:
        self.path = Path(folder) / f"{name}.checkpoint"
        self.digest = digest
        self._due = 0.0
        _make(self.path.parent)

    def read(self) -> tuple[int, dict[str, Any]]:
        """Return the number of pieces done and the values written with it; zero if there is no file.

        Tensors are on the CPU.

        Raises:
            ValueError: If the file belongs to another model or other data, or is not a checkpoint.
        """
        if not self.path.exists():
            return 0, {}
        try:
            header, tensors = read_tensors(self.path, _KIND)
            digest, done = header["digest"], header["done"]
            if type(done) is not int or done < 0:
                raise ValueError(f"expected a number of pieces, got {done!r}")
            values = {name: _restored(value, tensors) for name, value in header["values"].items()}
        except Exception as error:
            raise self.refusal(error) from error
        if digest != self.digest:
            raise ValueError(
                f"Expected a checkpoint of this model and these data, got {self.path}, which belongs to "
                "others: options, files or the seed have changed, or this model has been fitted since. "
                "Make a fitted model anew to find it as it was, delete all files *.checkpoint in "
                f"{self.path.parent} to start again, or pass another folder."
            )
        return done, values

    def refusal(self, reason: Exception) -> ValueError:
        """Return the error to raise if the content of the file cannot be what was written to it."""
        text = str(reason).removesuffix(".") if isinstance(reason, ValueError) else repr(reason)
        return ValueError(
            f"Cannot read the checkpoint {self.path}: {text}. Delete all files *.checkpoint in "
            f"{self.path.parent} to start again."
        )

    def write(self, done: int, values: dict[str, Any], *, now: bool = False) -> None:
        """Write the number of pieces done and values: numbers, tensors, dictionaries of tensors.

        Unless ``now``, nothing is written if the last time was so short ago that writing would slow
        the pass down.

        Raises:
            TypeError: If the format does not support the dtype of a tensor.
            OSError: If writing fails, as on a full disk. The file is then as it was before.
        """
        if not now and time.monotonic() < self._due:
            return
        start = time.monotonic()
        tensors: list[Tensor] = []
        described = {name: _described(value, tensors) for name, value in values.items()}
        header = {
            "digest": self.digest,
            "done": done,
            "values": described,
        }
        write_tensors(self.path, _KIND, header, tensors)
        end = time.monotonic()
        self._due = end + (end - start) / _SHARE


def _described(value: Any, tensors: list[Tensor]) -> Any:
    """Describe a value as plain data, and add its tensors to a list."""
    if isinstance(value, dict):
        return {"dictionary": {name: _described(item, tensors) for name, item in value.items()}}
    if isinstance(value, Tensor):
        tensors.append(value.cpu())
        return {"tensor": len(tensors) - 1}
    return value


def _restored(described: Any, tensors: list[Tensor]) -> Any:
    """Return the value that was described."""
    if not isinstance(described, dict):
        return described
    if "dictionary" in described:
        items = described["dictionary"].items()
        return {name: _restored(item, tensors) for name, item in items}
    return tensors[described["tensor"]]
