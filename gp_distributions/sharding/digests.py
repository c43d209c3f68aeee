"""Digests of data and models that are the same in every process."""

from __future__ import annotations

import copyreg
import hashlib
import pickle
from collections.abc import Iterable
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.rows.fingerprint import fingerprint

_PLAIN = (str, int, float, torch.dtype, torch.device, type(None))
# Attributes of code that decide what it computes.
_OF_CODE = "co_code", "co_consts", "co_names", "co_varnames", "co_flags"
_OF_FUNCTIONS = "__code__", "__defaults__", "__kwdefaults__", "__closure__"


def digest(*values: Any) -> str:
    """Return a digest of numbers, strings, arrays, tensors, modules, and collections of them.

    Other objects enter by what pickle would write of them, and functions without a name of their own
    by their code.

    Raises:
        TypeError: If an object cannot be pickled.
    """
    return _within(values, ())


def _within(value: Any, within: tuple[int, ...]) -> str:
    """Return the digest of a value that other objects hold."""
    hashed = hashlib.sha256()
    _add(hashed, value, within)
    return hashed.hexdigest()


def _add(hashed: Any, value: Any, within: tuple[int, ...]) -> None:
    """Add a value to a hash.

    Args:
        hashed: The hash.
        value: The value.
        within: The ``id`` of the objects that hold this value.
    """
    kind = type(value)
    hashed.update(f"{kind.__module__}.{kind.__qualname__}".encode())
    inside = (*within, id(value))
    parts: Iterable[Any]
    if isinstance(value, torch.nn.Module):
        parts = [fingerprint(value)]
    elif isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        parts = [value.dtype, tuple(value.shape), plain.tobytes()]
    elif kind in (np.ndarray, np.memmap) and value.dtype.kind in "biufcSUmM":
        parts = [value.dtype.str, value.shape, value.tobytes()]
    elif isinstance(value, bytes):
        hashed.update(f"{len(value)}:".encode() + value)
        return
    elif isinstance(value, _PLAIN):
        text = repr(value)
        hashed.update(f"{len(text)}:{text}".encode())
        return
    elif id(value) in within:
        parts = [within.index(id(value))]
    elif kind in (list, tuple):
        parts = value
    elif kind in (set, frozenset):
        parts = sorted(_within(item, inside) for item in value)
    elif kind is dict:
        parts = sorted((digest(name), _within(item, inside)) for name, item in value.items())
    elif isinstance(value, type):
        parts = [value.__module__, value.__qualname__]
    elif kind is FunctionType:
        parts = [value.__module__, value.__qualname__]
        if not _has_a_name(value):
            parts += [getattr(value, name) for name in _OF_FUNCTIONS]
    elif kind is CodeType:
        parts = [getattr(value, name) for name in _OF_CODE]
    elif kind is CellType:
        parts = [value.cell_contents]
    else:
        parts = _reduced(value)
    parts = list(parts)
    hashed.update(f"{len(parts)}:".encode())
    for part in parts:
        _add(hashed, part, inside)


def _has_a_name(function: Any) -> bool:
    """Return whether a function can be imported by its name."""
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError):
        return False
    return True


def _reduced(value: Any) -> list[Any]:
    """Return what makes up an object according to pickle: a function, its arguments and a state."""
    special = copyreg.dispatch_table.get(type(value))
    found = value.__reduce_ex__(2) if special is None else special(value)
    if isinstance(found, str):  # the name of a global object
        return [getattr(value, "__module__", None), found]
    return [list(part) if number > 2 and part else part for number, part in enumerate(found)]
