r"""Files that contain a header and tensors, sealed by a digest.

A file has the following layout, with numbers in little-endian order:

====================  ==============================================================
8 bytes               the signature of the kind of file
4 bytes               the version of the format
8 bytes               the length of the whole file
8 bytes               the length of the header
the header            JSON in UTF-8: the ``versions`` of the software that wrote the
                      file, the dtype and shape of each of the ``tensors``, and what
                      the kind of file adds
the tensors           the elements of each tensor in turn
32 bytes              the SHA-256 digest of all bytes before it
====================  ==============================================================

The reader checks the digest before it interprets the header. Every later version of a format will keep
the signature, the version, the lengths, the digest, and ``versions`` at the start of the header. Reading
executes nothing and takes memory in proportion to the size of the file, whatever the header says.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.writing import written_whole

_FRAME = struct.Struct("<8sIQQ")
_DIGEST = hashlib.sha256
_DIGEST_SIZE = _DIGEST().digest_size
_WRITER = re.compile(rb'"gp_distributions": "([\w.+!-]+)"')

_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float64", "float32", "float16", "int64", "int32", "uint8", "bool")
}


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        signature: The first eight bytes.
        format: The version of the format.
        description: What the file is, for error messages.
        error: The error to raise for a file that is not of this kind, or damaged.
    """

    signature: bytes
    format: int
    description: str
    error: type[ValueError]


def write_sealed(
    path: str | os.PathLike[str], kind: Kind, header: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Write a file completely or not at all.

    The file is written as by :func:`written_whole`. Where the system does not lock out a second writer,
    the digest reveals a mixture of the content of both.

    Args:
        path: Path to the file. A symbolic link is followed.
        kind: The kind of file.
        header: Content of the header, with ``versions`` first, to which this function adds ``tensors``.
        tensors: Tensors on the CPU.

    Raises:
        TypeError: If the format does not support the dtype of a tensor.
        OSError: If the path exists and is not a regular file, or if writing fails. An existing file is
            then unchanged.
    """
    arrays = [_as_array(tensor) for tensor in tensors]
    described = [{"dtype": array.dtype.name, "shape": list(array.shape)} for array in arrays]
    text = json.dumps({**header, "tensors": described}).encode()
    length = _FRAME.size + len(text) + sum(array.nbytes for array in arrays) + _DIGEST_SIZE
    frame = _FRAME.pack(kind.signature, kind.format, length, len(text))
    parts: list[Any] = [frame, text, *arrays]
    digest = _DIGEST()
    with written_whole(path) as file:
        for part in parts:
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def read_sealed(path: str | os.PathLike[str], kind: Kind) -> tuple[dict[str, Any], list[Tensor]]:
    """Read a file that :func:`write_sealed` wrote.

    Args:
        path: Path to the file.
        kind: The kind of file.

    Returns:
        The header and the tensors, on the CPU.

    Raises:
        ValueError: The error of the kind, if the file is damaged, truncated, too new or of another kind.
            The message names the version that wrote the file if that can still be read.
        OSError: If the file cannot be read.
    """
    content = Path(path).read_bytes()
    found = _WRITER.search(content, 0, _FRAME.size + 1000)
    written = f" It was written by gp_distributions {found[1].decode()}." if found else ""
    if content[: len(kind.signature)] != kind.signature[: len(content)] or not content:
        raise kind.error(f"{path} is not {kind.description}.{written}")
    if len(content) < _FRAME.size + _DIGEST_SIZE:
        raise kind.error(f"{path} is truncated: only {len(content)} bytes are left.{written}")
    _, number, length, header_length = _FRAME.unpack_from(content)
    if len(content) < length:
        raise kind.error(
            f"{path} is truncated: only {len(content)} of {length} bytes are left.{written}"
        )
    sealed = memoryview(content)[:-_DIGEST_SIZE]
    if _DIGEST(sealed).digest() != content[-_DIGEST_SIZE:]:
        raise kind.error(f"{path} is damaged: its digest does not match its content.{written}")
    data_start = _FRAME.size + header_length
    try:
        header = json.loads(bytes(sealed[_FRAME.size : data_start]))
        needed = header["versions"]["gp_distributions"]
        tensors = _tensors(header["tensors"], sealed[data_start:]) if number <= kind.format else []
    except Exception as error:
        raise kind.error(f"{path} has an invalid header: {error!r}.{written}") from error
    if number > kind.format:
        raise kind.error(
            f"{path} is in format {number}, but gp_distributions {version('gp_distributions')} only "
            f"reads formats up to {kind.format}. Install gp_distributions {needed}, which wrote it, or "
            "later."
        )
    return header, tensors


def _as_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise TypeError(f"Expected tensors of dtype {', '.join(_DTYPES)}, got {dtype}.")
    array = tensor.detach().contiguous().numpy()
    return array.astype(_DTYPES[dtype], copy=False)


def _tensors(described: list[dict[str, Any]], data: memoryview) -> list[Tensor]:
    tensors, start = [], 0
    for entry in described:
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"shape {shape}")
        stop = start + math.prod(shape) * dtype.itemsize
        array = np.ndarray(shape, dtype, buffer=data[start:stop])
        # Copy to memory that torch allocates, since the last bits of results can depend on alignment.
        tensors.append(torch.tensor(array.astype(dtype.newbyteorder("="), copy=False)))
        start = stop
    if start != len(data):
        raise ValueError("bytes that do not belong to a tensor")
    return tensors
