"""Settings that hold within a ``with`` block and in one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Set a context variable within a ``with`` block, in the current thread only.

    Args:
        variable: The variable. Blocks may be nested; each restores the value that it found.
        value: Its value within the block, which the ``with`` statement also binds.
    """
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
