"""What no function of this package may change: the settings of libraries."""

import warnings
from collections.abc import Callable
from typing import Any

import gpytorch
import linear_operator
import pytest


def settings() -> dict[str, Any]:
    """All settings of GPyTorch and linear_operator, and the filters of warnings."""
    state = {}
    for module in (gpytorch.settings, linear_operator.settings):
        for name, setting in vars(module).items():
            if isinstance(setting, type):
                values = {k: v for k, v in vars(setting).items() if isinstance(v, int | float)}
                if hasattr(setting, "on"):  # BoTorch sets flags to the values that they have
                    values = values | {"_default": None, "_state": setting.on()}
                state[f"{module.__name__}.{name}"] = repr(sorted(values.items()))
    # The first import of SymPy, which torch does when it likes, adds a filter of its own.
    filters = [f for f in warnings.filters if "sympy" not in f[2].__module__]
    return state | {"warnings": filters}


def settings_entered(patch: pytest.MonkeyPatch) -> list[str]:
    """Names of the settings that a ``with`` statement changes from now on, even for a while.

    Two threads that enter and leave a setting in turn can leave it changed for good.
    """
    entered: list[str] = []

    def watched(enter: Callable[[Any], Any], always: bool) -> Callable[[Any], Any]:
        def watching(self: Any) -> Any:
            before = settings()
            found = enter(self)
            if always or settings() != before:
                entered.append(type(self).__name__)
            return found

        return watching

    for module in (gpytorch.settings, linear_operator.settings):
        for setting in vars(module).values():
            if isinstance(setting, type) and "__enter__" in vars(setting):
                patch.setattr(setting, "__enter__", watched(setting.__enter__, always=False))
    catch = warnings.catch_warnings
    patch.setattr(catch, "__enter__", watched(catch.__enter__, always=True))
    return entered
