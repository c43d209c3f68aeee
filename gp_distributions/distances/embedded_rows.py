"""Rows that hold what was computed from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Module

from gp_distributions.rows.clouds import same_tensor
from gp_distributions.rows.columns import Columns, select_columns

ValueT = TypeVar("ValueT")
#: The parameters of a module with their values, and its buffers with the versions that changes raise.
State: TypeAlias = list[tuple[Tensor, Tensor | int]]


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
        self._known: dict[Hashable, tuple[State, Any]] = {}
        self._pairs: WeakKeyDictionary[EmbeddedRows, dict[Hashable, tuple[State, Any]]]
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
        by: Module | None = None,
        beside: EmbeddedRows | None = None,
    ) -> ValueT:
        """Return what ``make`` computes from these rows, which is done once.

        Args:
            key: What is computed.
            make: Function that computes it.
            by: The module that computes it. If its parameters or buffers change, it is computed anew.
            beside: Other rows from which it is computed, too; it is held as long as both exist.
        """
        state = [] if by is None else state_of(by)
        known = self._known if beside is None else self._pairs.setdefault(beside, {})
        key = key, by, self._tracked
        if key in known and same_state(known[key][0], state):
            found: ValueT = known[key][1]
            return found
        value = make()
        # Autograd cannot use what was computed in inference mode.
        if not torch.is_inference_mode_enabled() or self.rows.is_inference():
            known[key] = [] if by is None else state_of(by), value
        return value

    def holds(self, key: Hashable, *, by: Module) -> bool:
        """Whether :meth:`derived` need not compute."""
        found = self._known.get((key, by, self._tracked))
        return found is not None and same_state(found[0], state_of(by))

    @property
    def _tracked(self) -> bool:
        return self.rows.requires_grad and torch.is_grad_enabled()

    @property
    def parts(self) -> list[EmbeddedRows]:
        """The sets that together are these rows, one after the other."""
        return [self]

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.rows, self.prepared)


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


def state_of(module: Module) -> State:
    """Return the state of a module."""
    return [
        *((parameter, parameter.detach().clone()) for parameter in module.parameters()),
        *((buffer, version(buffer)) for buffer in module.buffers()),
    ]


def same_state(first: State, second: State) -> bool:
    """Whether two states are equal."""
    return len(first) == len(second) and all(
        a is b and _same(before, after)
        for (a, before), (b, after) in zip(first, second, strict=True)
    )


def _same(a: Tensor | int, b: Tensor | int) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return same_tensor(a, b)
    return a is b or (isinstance(a, int) and a == b)


def version(tensor: Tensor) -> int:
    """Return the number of changes of a tensor in place."""
    return 0 if tensor.is_inference() else tensor._version


def _remade(rows: Tensor, prepared: bool) -> EmbeddedRows:
    return EmbeddedRows(rows, prepared=prepared)
