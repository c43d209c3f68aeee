"""Posteriors of several models at the same rows, which are transformed and represented once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from torch import Tensor

from gp_distributions.context import setting
from gp_distributions.distances.embedded_rows import EmbeddedRows

_held: ContextVar[dict[int, EmbeddedRows] | None] = ContextVar("held", default=None)


@contextlib.contextmanager
def together(*known: EmbeddedRows) -> Iterator[None]:
    """Within this context and thread, models share what they compute from the same tensors of rows.

    Args:
        *known: Rows of which something was computed before.
    """
    outer = _held.get()
    shared = {} if outer is None else outer
    with setting(_held, shared):
        shared.update({id(each.rows): each for each in known})
        yield


def held(rows: Tensor) -> EmbeddedRows:
    """Return what holds rows: within :func:`together`, always the same object for a tensor."""
    known = _held.get()
    if known is None:
        return EmbeddedRows(rows)
    return known.setdefault(id(rows), EmbeddedRows(rows))  # which keeps the id from being reused
