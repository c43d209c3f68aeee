"""Modules whose parameters count as constants."""

from __future__ import annotations

from typing import TypeVar

ModuleT = TypeVar("ModuleT")


def with_fixed_parameters(module: ModuleT) -> ModuleT:
    """Return a module that shares everything with another, except that no gradient reaches parameters.

    The module itself does not change, so other threads can use it at the same time.

    Args:
        module: A ``torch.nn.Module``.
    """
    fixed = object.__new__(type(module))
    own = vars(module)
    parameters = {name: None if p is None else p.detach() for name, p in own["_parameters"].items()}
    modules = {
        name: None if child is None else with_fixed_parameters(child)
        for name, child in own["_modules"].items()
    }
    vars(fixed).update(own | {"_parameters": parameters, "_modules": modules})
    return fixed
