"""Digests of data and models that are the same in every process."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.rows.memory import fingerprint


def digest(*values: Any) -> str:
    """Return a digest of numbers, strings, arrays, tensors, modules, and collections of them.

    Other objects enter by their class and attributes.
    """
    hashed = hashlib.sha256()
    _add(hashed, values, ())
    return hashed.hexdigest()


def _add(hashed: Any, value: Any, within: tuple[int, ...]) -> None:
    """Add a value to a hash.

    Args:
        hashed: The hash.
        value: The value.
        within: The ``id`` of the objects whose attributes lead to this value.
    """
    parts: Iterable[Any] = ()
    if isinstance(value, torch.nn.Module):
        parts = [fingerprint(value)]
    elif isinstance(value, Tensor):
        parts = [value.detach().cpu().numpy()]
    elif isinstance(value, np.ndarray) and value.dtype != object:
        hashed.update(f"array{value.dtype.str}{value.shape}".encode())
        hashed.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, bytes):
        hashed.update(f"bytes{len(value)}:".encode() + value)
    elif isinstance(value, type) or hasattr(value, "__qualname__"):  # classes and functions
        hashed.update(f"{value.__module__}.{value.__qualname__};".encode())
    elif value is None or isinstance(value, str | int | float | torch.dtype | torch.device):
        text = repr(value)
        hashed.update(f"{type(value).__name__}{len(text)}:{text}".encode())
    elif isinstance(value, dict):
        parts = sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, set | frozenset):
        parts = sorted(map(digest, value))
    elif isinstance(value, Iterable):
        parts = list(value)
    elif not hasattr(value, "__dict__"):
        hashed.update(pickle.dumps(value))
    elif id(value) not in within:
        within = (*within, id(value))
        parts = [type(value), vars(value)]
    parts = list(parts)
    hashed.update(f"parts{len(parts)}:".encode())
    for part in parts:
        _add(hashed, part, within)
