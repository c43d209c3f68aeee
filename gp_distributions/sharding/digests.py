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

    Other objects enter by their pickles.
    """
    hashed = hashlib.sha256()
    _add(hashed, values)
    return hashed.hexdigest()


def _add(hashed: Any, value: Any) -> None:
    if isinstance(value, torch.nn.Module):
        _add(hashed, fingerprint(value))
    elif isinstance(value, Tensor):
        _add(hashed, value.detach().cpu().numpy())
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
        _add(hashed, sorted(value.items()))
    elif isinstance(value, set | frozenset):
        _add(hashed, sorted(map(digest, value)))
    elif hasattr(type(value), "__dataclass_fields__"):
        _add(hashed, (type(value), *(getattr(value, f) for f in type(value).__dataclass_fields__)))
    elif isinstance(value, Iterable):
        items = list(value)
        hashed.update(f"items{len(items)}:".encode())
        for item in items:
            _add(hashed, item)
    else:
        hashed.update(pickle.dumps(value))
