"""Parameters and buffers of modules, by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from operator import itemgetter
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter


def described_state(model: Module, describe: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the description of each ``value``, and whether it ``requires_grad``, by the full name."""
    return {
        name: {
            "value": describe(value),
            "requires_grad": isinstance(value, Parameter) and value.requires_grad,
        }
        for name, _, _, value in sorted(_state(model), key=itemgetter(0))
    }


def set_state(
    model: Module,
    state: Mapping[str, Any],
    value_of: Callable[[Any], Any],
    *,
    optional: Collection[str] = (),
) -> None:
    """Set parameters and buffers, whose shapes may change; parameters that were shared stay shared.

    Args:
        model: The module.
        state: What :func:`described_state` returned.
        value_of: Function that converts the description of a value.
        optional: Names that may be missing; their values stay.

    Raises:
        ValueError: If the names are not those of the module.
    """
    places = [place for place in _state(model) if place[0] in state or place[0] not in optional]
    differing = {name for name, *_ in places} ^ set(state)
    if differing:
        raise ValueError(f"the state differs in {', '.join(sorted(differing))}")
    parameters: dict[int, Parameter] = {}
    for full_name, module, name, _ in places:
        value = value_of(state[full_name]["value"])
        if name not in module._parameters:
            module._buffers[name] = value
        elif value is None:
            module._parameters[name] = None
        else:
            parameter = Parameter(value, requires_grad=state[full_name]["requires_grad"])
            module._parameters[name] = parameters.setdefault(id(value), parameter)


def _state(model: Module) -> Iterator[tuple[str, Module, str, Tensor | None]]:
    """Yield each parameter and buffer: full name, module, name within the module, and value."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for values in (module._parameters, module._buffers):
            for name, value in values.items():
                yield f"{prefix}.{name}", module, name, value
