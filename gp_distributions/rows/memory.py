"""What was computed of rows, remembered by content: never by identity, and never with a gradient."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_OF_MODULES = set(vars(torch.nn.Module()))


@dataclass(frozen=True, eq=False)
class Entry:
    """One value, the rows that it was computed of, and the fingerprint of what computed it."""

    fingerprint: Hashable
    rows: Tensor
    value: Any


class Memory:
    """The most recent values computed of rows, found again by the content of the rows.

    All methods are safe to call from several threads. Copies and pickles of a memory are empty.

    Args:
        capacity: Number of values to remember.
    """

    def __init__(self, capacity: int = 2) -> None:
        self._capacity = capacity
        self._entries: tuple[Entry, ...] = ()
        self._lock = threading.Lock()

    def recall(self, fingerprint: Hashable, rows: Tensor) -> Any | None:
        """Returns the value of exactly these rows, or ``None``."""
        for entry in self._entries:
            if entry.fingerprint == fingerprint and same_tensor(rows, entry.rows):
                self._add(entry)
                return entry.value
        return None

    def recall_prefix(self, fingerprint: Hashable, rows: Tensor) -> Entry | None:
        """Returns the entry of the first rows of every batch, or ``None``.

        GPyTorch sets training rows before test rows, and BoTorch repeats them in every t-batch.
        """
        for entry in self._entries:
            size, width = entry.rows.shape
            if entry.fingerprint != fingerprint or rows.shape[-1] != width:
                continue
            if rows.shape[-2] <= size or not same_kind(rows, entry.rows):
                continue
            if bool((rows[..., :size, :] == entry.rows).all()):
                self._add(entry)
                return entry
        return None

    def remember(self, fingerprint: Hashable, rows: Tensor, value: Any) -> None:
        """Adds a value, and forgets the one not used for longest if there is no room.

        Tensors made in inference mode are not remembered, since autograd cannot use them later.
        """
        if not torch.is_inference_mode_enabled():
            self._add(Entry(fingerprint, rows.detach().clone(), value))

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._entries = ()

    def _add(self, entry: Entry) -> None:
        with self._lock:  # readers hold the tuple that they began with
            others = tuple(other for other in self._entries if other is not entry)
            self._entries = (*others, entry)[-self._capacity :]

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        return Memory(self._capacity)

    def __reduce__(self) -> tuple[type[Memory], tuple[int]]:
        return Memory, (self._capacity,)


def fingerprint(module: torch.nn.Module) -> Hashable:
    """Identifies a module by its class, settings, parameters and buffers, those of parts included.

    Two modules with equal fingerprints compute the same. Settings are compared by value where they are
    plain data, and otherwise by identity.
    """
    settings = [
        (name, _key(value)) for name, value in vars(module).items() if name not in _OF_MODULES
    ]
    tensors = [
        (name, None if value is None else _key(value))
        for values in (module._parameters, module._buffers)
        for name, value in values.items()
    ]
    parts = [
        (name, None if part is None else fingerprint(part))
        for name, part in module._modules.items()
    ]
    return type(module), *sorted(settings), *tensors, *parts


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in content, shape, dtype and device."""
    return a.shape == b.shape and same_kind(a, b) and torch.equal(a, b)


def same_kind(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in dtype and device."""
    return a.dtype == b.dtype and a.device == b.device


def _key(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return value.dtype, value.device, tuple(value.shape), content
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return type(value), *map(_key, value)
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
    """A value that cannot be compared, kept so that no other takes its place in memory."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
