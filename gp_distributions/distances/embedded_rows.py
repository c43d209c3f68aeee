"""Rows that hold what was computed from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gp_distributions.rows.columns import Columns, select_columns
from gp_distributions.rows.contents import is_tracked
from gp_distributions.rows.fingerprint import fingerprint

ValueT = TypeVar("ValueT")

# What is computed from each row alone, ``... x N x D``.
_OF_EACH = ("fixed", "norms")


class EmbeddedRows:
    """Rows, and what modules have computed from them.

    The object whose rows they are holds it: a model its training rows, a posterior its test rows. The
    rows must not change while it is held.

    Args:
        rows: A ``batch_shape x N x width`` tensor.
        prepared: Whether many other rows will be compared with these.
    """

    def __init__(self, rows: Tensor, *, prepared: bool = False) -> None:
        self.rows = rows
        self.prepared = prepared
        # What was computed, with the fingerprint of the module that did so.
        self._known: dict[Hashable, tuple[Hashable, Any]] = {}
        self._pairs: WeakKeyDictionary[EmbeddedRows, dict[Hashable, tuple[Hashable, Any]]]
        self._pairs = WeakKeyDictionary()

    def select(self, columns: Columns) -> EmbeddedRows:
        """Return the rows of some columns, which are selected once."""
        if columns is None:
            return self
        return self.derived(
            columns,
            lambda: EmbeddedRows(select_columns(self.rows, columns), prepared=self.prepared),
        )

    def derived(
        self,
        key: Hashable,
        make: Callable[[], ValueT],
        *,
        by: object = None,
        state: Hashable = None,
        beside: EmbeddedRows | None = None,
    ) -> ValueT:
        """Return what ``make`` computes from these rows, which is done once.

        Args:
            key: What is computed.
            make: Function that computes it.
            by: The module that computes it. If it has changed since, it is computed anew.
            state: What else it depends on; the same holds.
            beside: Other rows from which it is computed, too; it is held as long as both exist.
        """
        known = self._known if beside is None else self._pairs.setdefault(beside, {})
        key = key, by, is_tracked(self.rows)
        if key in known and known[key][0] == _state(by, state):
            found: ValueT = known[key][1]
            return found
        value = make()
        # Autograd cannot use what was computed in inference mode.
        if not torch.is_inference_mode_enabled() or self.rows.is_inference():
            known[key] = _state(by, state), value
        return value

    def take(self, index: Tensor, rows: Tensor) -> EmbeddedRows:
        """Return some of the rows, with what was computed from each row alone.

        Args:
            index: Numbers of the rows.
            rows: The rows of these numbers.
        """
        taken = EmbeddedRows(rows, prepared=self.prepared)
        for key, (state, value) in self._known.items():
            if isinstance(value, EmbeddedRows):  # some of the columns, or of one output
                part = value.take(index, value.rows.index_select(-2, index))
                taken._known[key] = state, part
            elif isinstance(key, tuple) and key[0] in _OF_EACH:
                taken._known[key] = state, value.index_select(-2, index)
        return taken

    def holds(self, key: Hashable, *, by: object) -> bool:
        """Whether :meth:`derived` need not compute."""
        found = self._known.get((key, by, is_tracked(self.rows)))
        return found is not None and found[0] == _state(by)

    @property
    def parts(self) -> list[EmbeddedRows]:
        """The sets that together are these rows, one after the other."""
        return [self]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(EmbeddedRows, prepared=self.prepared), (self.rows,)


class JoinedRows(EmbeddedRows):
    """Several sets of rows, one after the other, as one.

    Args:
        parts: The sets, with the same batch shape and width.
    """

    def __init__(self, parts: Sequence[EmbeddedRows]) -> None:
        super().__init__(torch.cat([part.rows for part in parts], dim=-2))
        self._parts = list(parts)

    @property
    def parts(self) -> list[EmbeddedRows]:
        """The sets that together are these rows, one after the other."""
        return self._parts


Rows: TypeAlias = Tensor | EmbeddedRows


def selected(rows: Rows, columns: Columns) -> Rows:
    """Return some columns of rows, as what the rows are."""
    if isinstance(rows, EmbeddedRows):
        return rows.select(columns)
    return select_columns(rows, columns)


def rows_of(rows: Any) -> Tensor:
    """Return rows as a tensor."""
    found: Tensor = rows.rows if isinstance(rows, EmbeddedRows) else rows
    return found


def embedded(rows: Rows) -> EmbeddedRows:
    """Return rows as an object that holds what is computed from them."""
    return rows if isinstance(rows, EmbeddedRows) else EmbeddedRows(rows)


def _state(by: object, state: Hashable = None) -> Hashable:
    return None if by is None else fingerprint(by), state
