r"""One file of a header and tensors, sealed by a digest.

The layout, with numbers in little-endian order:

====================  ==============================================================
8 bytes               the signature :data:`SIGNATURE`
4 bytes               the version of the format
8 bytes               the length of the whole file
8 bytes               the length of the header
the header            JSON in UTF-8: ``versions`` of the software that wrote the file,
                      ``tensors`` (dtype and shape of each), and what is to be said of them
the tensors           their elements in turn
32 bytes              SHA-256 of all bytes before
====================  ==============================================================

The digest is checked before anything else is read. Every later version keeps the frame: signature,
version, lengths, ``versions`` in the header, and the digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import struct
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIGNATURE = b"\x89GPDIST\n"
FORMAT = 1

_FRAME = struct.Struct("<8sIQQ")
_DIGEST = hashlib.sha256
_DIGEST_SIZE = _DIGEST().digest_size

_DTYPES = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "int64": "<i8",
    "int32": "<i4",
    "uint8": "<u1",
    "bool": "?",
}


class SavedModelError(ValueError):
    """A file is damaged, cut off, too new, or none that this package wrote."""


def write_archive(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: Sequence[Tensor]
) -> None:
    """Write a file, whole or not at all: a file of that name is replaced when all is on the disk.

    Args:
        path: Of the file.
        header: What is written as JSON, without ``tensors``, which are added.
        tensors: On the CPU.

    Raises:
        TypeError: If there is no place in the format for the dtype of a tensor.
        OSError: If the file cannot be written; an older one is then as it was.
    """
    arrays = [_as_array(tensor) for tensor in tensors]
    described = [
        {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        for tensor in tensors
    ]
    text = json.dumps({**header, "tensors": described}).encode()
    length = _FRAME.size + len(text) + sum(array.nbytes for array in arrays) + _DIGEST_SIZE
    parts: list[Any] = [_FRAME.pack(SIGNATURE, FORMAT, length, len(text)), text, *arrays]
    digest = _DIGEST()
    target = Path(path).resolve()
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with unfinished.open("xb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        raise


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Tensor]]:
    """Read what :func:`write_archive` wrote.

    Args:
        path: Of the file.

    Returns:
        The header and the tensors, on the CPU.

    Raises:
        SavedModelError: If the file is damaged, cut off, too new, or no such file.
        OSError: If it cannot be read.
    """
    content = Path(path).read_bytes()
    if content[: len(SIGNATURE)] != SIGNATURE[: len(content)] or not content:
        raise SavedModelError(f"{path} is no model that gp_distributions.save wrote.")
    if len(content) < _FRAME.size + _DIGEST_SIZE:
        raise SavedModelError(f"{path} is cut off: {len(content)} bytes are left.")
    _, number, length, header_length = _FRAME.unpack_from(content)
    if len(content) < length:
        raise SavedModelError(f"{path} is cut off: {len(content)} of {length} bytes are left.")
    sealed = memoryview(content)[:-_DIGEST_SIZE]
    if _DIGEST(sealed).digest() != content[-_DIGEST_SIZE:]:
        raise SavedModelError(f"{path} is damaged: its bytes are not those that were written.")
    data_start = _FRAME.size + header_length
    try:
        header = json.loads(bytes(sealed[_FRAME.size : data_start]))
        needed = header["versions"]["gp_distributions"]
        tensors = _tensors(header["tensors"], sealed[data_start:]) if number <= FORMAT else []
    except Exception as error:
        raise SavedModelError(f"{path} has a header that makes no sense: {error!r}.") from error
    if number > FORMAT:
        raise SavedModelError(
            f"{path} is in format {number}, but gp_distributions {version('gp_distributions')} reads "
            f"formats up to {FORMAT}. It needs gp_distributions {needed}, which wrote it, or later."
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
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"shape {shape}")
        stop = start + math.prod(shape) * dtype.itemsize
        array = np.ndarray(shape, dtype, buffer=data[start:stop])
        # In memory of torch's own, whose alignment results may depend on to the last bit.
        tensors.append(torch.tensor(array.astype(dtype.newbyteorder("="), copy=False)))
        start = stop
    if start != len(data):
        raise ValueError("bytes that belong to no tensor")
    return tensors
