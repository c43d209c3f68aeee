"""Fingerprints of modules: equal for modules with the same settings, parameters and buffers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Attributes of modules of PyTorch and GPyTorch that are no settings, and what distances have computed.
# Constraints are submodules, too.
_OF_MODULES = {
    *vars(torch.nn.Module()),
    *("_priors", "_constraints", "_added_loss_terms", "memory", "warm_starts"),
}
# Most settings are of these types, which are compared by value.
_PLAIN = {bool, int, float, str, type(None)}


def fingerprint(module: Any) -> Hashable:
    """Return a key made of a module's class, settings, parameters, buffers and submodules but priors.

    Modules with equal fingerprints compute the same results. Settings that are plain data (numbers,
    strings, arrays, tensors, and lists, tuples, sets and mappings of them) are compared by value. Other
    settings are compared by ``==`` if they can be hashed, and by identity if not.
    """
    settings = sorted(name for name in vars(module) if name not in _OF_MODULES)
    own = [(name, _key(vars(module)[name])) for name in settings]
    priors = vars(module).get("_priors", {})  # which change no result of the module itself
    submodules = {n: part for n, part in module._modules.items() if n not in priors}
    parts = module._parameters, module._buffers, submodules
    return (
        type(module),
        *own,
        *((name, _key(value)) for part in parts for name, value in part.items()),
    )


def _key(value: Any) -> Hashable:
    if type(value) in _PLAIN:
        return type(value), value
    if isinstance(value, torch.nn.Module):
        return fingerprint(value)
    if isinstance(value, Tensor):
        return value.dtype, value.device, value.shape, value.numpy(force=True).tobytes()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return type(value), *map(_key, value)
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(_key, value))
    if isinstance(value, Mapping):
        return type(value), *((_key(name), _key(item)) for name, item in value.items())
    try:
        hash(value)
    except TypeError:
        return _ById(value)
    return type(value).__qualname__, value


@dataclass(frozen=True)
class _ById:
    """A wrapper that compares a value by identity, and keeps it alive so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
