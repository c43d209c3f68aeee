"""What no function of this package may change: the settings of libraries."""

import warnings
from typing import Any

import gpytorch
import linear_operator


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
