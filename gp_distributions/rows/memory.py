"""What a fixed distance remembers of the clouds it has seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Entry:
    """One set of clouds: its rows, their representation and their squared distances."""

    rows: Tensor
    representation: Tensor
    squared: Tensor


class DistanceCache:
    """The most recent sets of clouds whose distances to each other were asked for.

    A set is found again by the content of its rows, never by identity; every entry falls when the
    state of the distance (its parameters and buffers) is not what it was.
    """

    capacity = 2

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._state: list[Tensor] = []

    def refresh(self, state: Iterable[Tensor]) -> None:
        """Forget everything if ``state`` has changed in content, dtype or device."""
        current = [tensor.detach() for tensor in state]
        if len(current) != len(self._state) or not all(map(same_tensor, current, self._state)):
            self._entries = []
            self._state = [tensor.clone() for tensor in current]

    def find(self, rows: Tensor) -> Entry | None:
        """The entry of exactly these rows."""
        for entry in self._entries:
            if same_tensor(rows, entry.rows):
                self._touch(entry)
                return entry
        return None

    def find_prefix(self, rows: Tensor) -> Entry | None:
        """The entry of the first clouds of every batch of ``rows``.

        GPyTorch sets training rows before test rows, and BoTorch repeats them in every t-batch.
        """
        for entry in self._entries:
            size, width = entry.rows.shape
            if rows.shape[-1] != width or rows.shape[-2] <= size or rows.dtype != entry.rows.dtype:
                continue
            if rows.device == entry.rows.device and bool((rows[..., :size, :] == entry.rows).all()):
                self._touch(entry)
                return entry
        return None

    def add(self, entry: Entry) -> None:
        """Remember an entry, and forget the one not used for longest if there is no room."""
        self._touch(entry)

    def _touch(self, entry: Entry) -> None:
        """Put an entry last, in a list of its own: another thread may be reading the present one."""
        kept = [other for other in self._entries if other is not entry]
        self._entries = [*kept, entry][-self.capacity :]


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are alike in content, shape, dtype and device."""
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
