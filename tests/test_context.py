"""Settings of one block and one thread."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from gp_distributions.context import setting


def test_settings_are_restored() -> None:
    variable = ContextVar("variable", default=0)
    with setting(variable, 1) as value:
        assert value == 1
        with pytest.raises(RuntimeError, match=r"stop.* 2"), setting(variable, 2):
            raise RuntimeError(f"stop at {variable.get()}")
        assert variable.get() == 1
    assert variable.get() == 0


def test_other_threads_keep_their_settings() -> None:
    variable = ContextVar("variable", default=0)
    with ThreadPoolExecutor(1) as pool, setting(variable, 1):
        assert pool.submit(variable.get).result() == 0
