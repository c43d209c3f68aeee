"""A cache of values computed from rows. It looks values up by the content of the rows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.context import setting
from gp_distributions.rows.columns import selecting_once
from gp_distributions.rows.padding import cloned

# Attributes of modules of PyTorch and GPyTorch that are no settings. Constraints are submodules, too.
_OF_MODULES = {*vars(torch.nn.Module()), "_priors", "_constraints", "_added_loss_terms"}
# Tensors whose content was compared lately, with the entry that holds it.
_compared: ContextVar[dict[Hashable, tuple[Tensor, Entry]] | None]
_compared = ContextVar("compared", default=None)
_MOST_COMPARED = 4


@dataclass(frozen=True, eq=False)
class Entry:
    """A value, the rows from which it was computed, and the fingerprint of the module that did so."""

    fingerprint: Hashable
    rows: Tensor
    value: Any


@contextlib.contextmanager
def unchanging_rows() -> Iterator[None]:
    """Compare the content of each tensor of rows once, in this context and thread.

    For a computation that evaluates the same rows many times and changes none of them, such as a fit: to
    compare large bags takes longer than all else. Changes that PyTorch counts are noticed all the same.
    """
    outer = _compared.get()
    with setting(_compared, {} if outer is None else outer), selecting_once():
        yield


def _holds(entry: Entry, rows: Tensor) -> bool:
    """Whether the rows of an entry have the content of these."""
    compared = _compared.get()
    if compared is None or rows.is_inference():
        return same_tensor(rows, entry.rows)
    key = rows.data_ptr(), rows._version, rows.dtype, rows.device, rows.shape, rows.stride()
    if key in compared and compared[key][1] is entry:
        return True
    if not same_tensor(rows, entry.rows):
        return False
    compared[key] = rows, entry  # a tensor that is kept keeps its address
    while len(compared) > _MOST_COMPARED:
        del compared[next(iter(compared))]
    return True


class Memory:
    """A cache of the most recently used values computed from rows.

    Values are looked up by the content of the rows.

    All methods are safe to call from several threads. Copies and pickles of a memory are empty.

    Args:
        capacity: Number of values to remember.
    """

    def __init__(self, capacity: int = 2) -> None:
        self._capacity = capacity
        self._entries: tuple[Entry, ...] = ()
        self._lock = threading.Lock()

    def recall(self, fingerprint: Hashable, rows: Tensor) -> Any | None:
        """Return the value computed from exactly these rows, or ``None`` if it is not remembered."""
        for entry in reversed(self._entries):
            if entry.fingerprint == fingerprint and _holds(entry, rows):
                self._add(entry)
                return entry.value
        return None

    def recall_prefix(self, fingerprint: Hashable, rows: Tensor) -> Entry | None:
        """Return an entry whose rows are the first of ``rows`` in every batch, or ``None``.

        GPyTorch puts the training rows before the test rows, and BoTorch repeats the training rows in
        every t-batch. Of several such entries, the longest is returned.
        """
        for entry in sorted(self._entries, key=lambda entry: len(entry.rows), reverse=True):
            size, width = entry.rows.shape
            if entry.fingerprint != fingerprint or rows.shape[-1] != width:
                continue
            if rows.shape[-2] <= size or not same_kind(rows, entry.rows):
                continue
            if bool((rows[..., :size, :] == entry.rows).all()):
                self._add(entry)
                return entry
        return None

    def values(self) -> list[Any]:
        """Return all values that are remembered."""
        return [entry.value for entry in self._entries]

    def remember(self, fingerprint: Hashable, rows: Tensor, value: Any) -> None:
        """Add a value, in place of the least recently used one if the memory is full.

        Nothing is remembered in inference mode, since autograd cannot use tensors created in that mode.
        """
        if not torch.is_inference_mode_enabled():
            self._add(Entry(fingerprint, cloned(rows.detach()), value))

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._entries = ()

    def _add(self, entry: Entry) -> None:
        with self._lock:  # threads that are reading keep the old tuple
            others = tuple(other for other in self._entries if other is not entry)
            self._entries = (*others, entry)[-self._capacity :]

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        return Memory(self._capacity)

    def __reduce__(self) -> tuple[type[Memory], tuple[int]]:
        return Memory, (self._capacity,)


def fingerprint(module: Any) -> Hashable:
    """Return a key made of a module's class, settings, parameters, buffers and submodules but priors.

    Modules with equal fingerprints compute the same results. Settings that are plain data (numbers,
    strings, arrays, tensors, and lists, tuples, sets and mappings of them) are compared by value. Other
    settings are compared by ``==`` if they can be hashed, and by identity if not.
    """
    settings = sorted(name for name in vars(module) if name not in _OF_MODULES)
    own = [(name, _key(vars(module)[name])) for name in settings]
    priors = vars(module).get("_priors", {})  # which change no result of the module itself
    submodules = {n: part for n, part in module._modules.items() if n not in priors}
    parts = module._parameters, module._buffers, submodules
    return (
        type(module),
        *own,
        *((name, _key(value)) for part in parts for name, value in part.items()),
    )


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same content, shape, dtype and device."""
    return a.shape == b.shape and same_kind(a, b) and torch.equal(a, b)


def same_kind(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same dtype and device."""
    return a.dtype == b.dtype and a.device == b.device


def _key(value: Any) -> Hashable:
    if isinstance(value, torch.nn.Module):
        return fingerprint(value)
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return value.dtype, value.device, tuple(value.shape), content
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return type(value), *map(_key, value)
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(_key, value))
    if isinstance(value, Mapping):
        return type(value), *((_key(name), _key(item)) for name, item in value.items())
    if isinstance(value, Memory):
        return Memory
    try:
        hash(value)
    except TypeError:
        return _ById(value)
    return type(value), value


@dataclass(frozen=True)
class _ById:
    """A wrapper that compares a value by identity, and keeps it alive so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
