"""Files: written completely or not at all, and such files of tensors with a description.

Files of tensors are files of safetensors. Their metadata are one entry, ``content``: JSON of a
description, which starts with the ``kind`` of the file, its ``format`` and the ``versions`` of the
software, and of the SHA-256 digest of the description and of all tensors. Reading them runs no code
from the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.numpy
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

# Models of format 2, of version 0.3, had other distances.
FORMAT = 3

# How files of versions up to 0.2.0 begin.
_EARLIER = re.compile(rb'\x89GPD.*?"gp_distributions": "([^"]+)"', re.DOTALL)
_LIBRARIES = ("gp_distributions", "torch", "gpytorch", "botorch", "numpy", "scikit-learn")


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block ends without an error.

    The content goes to ``.NAME.ID.unfinished`` beside the target ``NAME``, which it then replaces in one
    step. A process that is killed leaves its unfinished file. If two processes write to the same path,
    the last to finish wins.

    Args:
        path: Path to the file. A symbolic link is followed. The new file has the permissions of the one
            that it replaces.

    Yields:
        The unfinished file, which is empty.

    Raises:
        FileNotFoundError: If the folder of the path does not exist.
        OSError: If the path is a folder, or if writing fails. An existing file is then unchanged.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Expected a path in an existing folder, got {path}. Create the folder first."
        )
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}.unfinished")
    try:
        with unfinished.open("xb") as file:
            if target.exists():
                shutil.copymode(target, unfinished)
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException as error:
        error.add_note(f"Nothing was written to {path}; an existing file stays as it was.")
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def write_tensors(
    path: str | os.PathLike[str], kind: str, description: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Write tensors and their description as :func:`written_whole` does.

    Args:
        path: Path to the file.
        kind: What the file is, for error messages.
        description: Plain data.
        tensors: Tensors on any device.
    """
    frame = {"kind": kind, "format": FORMAT, "versions": versions()}
    text = json.dumps(frame | description)
    arrays = {str(i): each.contiguous().numpy(force=True) for i, each in enumerate(tensors)}
    # One entry, as safetensors writes several in any order.
    metadata = {"content": json.dumps([text, _digest(text, arrays)])}
    content = safetensors.numpy.save(arrays, metadata)
    with written_whole(path) as file:
        file.write(content)


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], list[Tensor]]:
    """Read a file that :func:`write_tensors` wrote.

    Args:
        path: Path to the file.
        kind: What it should be.

    Returns:
        The description and the tensors, on the CPU.

    Raises:
        ValueError: If the file is damaged, truncated, of another version or of another kind. The message
            names the version that wrote it if that can be read.
        OSError: If the file cannot be read.
    """
    with open(path, "rb") as file:
        earlier = _EARLIER.match(file.read(1000))
    if earlier:
        raise ValueError(
            f"{path} was written by gp_distributions {earlier[1].decode()}, whose files this version "
            "does not read. Install that version to read it, or fit again and save with this one."
        )
    try:
        with safe_open(path, framework="numpy") as content:
            metadata = content.metadata() or {}
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or is not {kind}: {error}.") from error
    text, digest = json.loads(metadata.get("content", '["{}", ""]'))
    if digest != _digest(text, arrays):
        raise ValueError(f"{path} is damaged, or is not {kind}: its digest does not match.")
    description = json.loads(text)
    if description["format"] != FORMAT:
        writer = description["versions"]["gp_distributions"]
        raise ValueError(
            f"{path} is in format {description['format']}, and this version reads format {FORMAT}. "
            f"Install gp_distributions {writer}, which wrote it, or fit again and save with this one."
        )
    if description["kind"] != kind:
        raise ValueError(f"{path} is {description['kind']}, not {kind}.")
    # Copied to memory that torch allocates, since the last bits of results can depend on alignment.
    return description, [torch.tensor(arrays[str(i)]) for i in range(len(arrays))]


def _digest(text: str, arrays: dict[str, Any]) -> str:
    hashed = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        hashed.update(f"{name} {array.dtype} {array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of libraries, as far as they are installed."""
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):  # in a source tree
            found[library] = version(library)
    return found
