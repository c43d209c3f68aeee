"""Intermediate results in a folder, each written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from gp_distributions.locking import locked
from gp_distributions.writing import written_whole

# Length of the digest at the end of a file.
_SEAL = hashlib.sha256().digest_size
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

        Raises:
            ValueError: If the file belongs to another model or other data, or is not a checkpoint.
        """
        if not self.path.exists():
            return 0, {}
        try:
            sealed = memoryview(self.path.read_bytes())
            written, seal = sealed[:-_SEAL], sealed[-_SEAL:]
            if hashlib.sha256(written).digest() != seal:
                raise ValueError("its digest does not match its content")
            content = torch.load(BytesIO(written), weights_only=True)
            digest, done, values = content["digest"], content["done"], content["values"]
        except Exception as error:
            raise ValueError(
                f"Cannot read the checkpoint {self.path}: {error}. Delete all files *.checkpoint in "
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
        """Write the number of pieces done and values: numbers, strings, tensors, lists of them.

        Unless ``now``, nothing is written if the last time was so short ago that writing would slow
        the pass down.

        Raises:
            OSError: If writing fails, as on a full disk. The file is then as it was before.
        """
        if not now and time.monotonic() < self._due:
            return
        start = time.monotonic()
        content = {"digest": self.digest, "done": done, "values": values}
        # PyTorch does not check its files, and does not say why writing to one failed.
        buffer = BytesIO()
        torch.save(content, buffer)
        with written_whole(self.path) as file, buffer.getbuffer() as written:
            file.write(written)
            file.write(hashlib.sha256(written).digest())
        end = time.monotonic()
        self._due = end + (end - start) / _SHARE
