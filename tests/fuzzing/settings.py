"""All settings of the process that no call of the package may change."""

import os
import random
import warnings
from typing import Any

import gpytorch
import linear_operator
import numpy as np
import torch


def settings() -> dict[str, Any]:
    """Settings of Python, NumPy, PyTorch and GPyTorch, and the states of random numbers."""
    state: dict[str, Any] = {}
    for module in (gpytorch.settings, linear_operator.settings):
        for name, setting in vars(module).items():
            if isinstance(setting, type):
                values = {k: v for k, v in vars(setting).items() if isinstance(v, int | float)}
                state[f"{module.__name__}.{name}"] = repr(sorted(values.items()))
    # The first import of SymPy, which torch does when it likes, adds a filter of its own.
    filters = [f for f in warnings.filters if "sympy" not in f[2].__module__]
    # So does the first import of its compiler, which sets this variable.
    environment = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
    return state | {
        "warnings": repr(filters),
        "showwarning": warnings.showwarning,
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": repr(np.random.get_state(legacy=False)),  # noqa: NPY002
        "random": random.getstate(),
        "errors": np.geterr(),
        "printing": repr((np.get_printoptions(), torch._tensor_str.PRINT_OPTS)),
        "environment": environment,
        "folder": os.getcwd(),
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of the settings that differ."""
    return [name for name in before | after if before.get(name) != after.get(name)]
