"""What the description in a file may ask for, given the size of the file.

Constructors take the memory and the time that their arguments say. The arguments in a file that
:func:`save` wrote are small, or as large as its tensors; those in a forged file may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

# What every file may ask for: an integer, elements of a tensor that a constructor makes, modules within
# a module and their depth, and bytes of an array of labels.
_NUMBER = 10**6
_ELEMENTS = 10**7
_MODULES = 10**4
_DEPTH = 100
_BYTES = 10**8
# How many times a file may expand the elements that it holds, as for independent outputs.
_EXPANSION = 1024
# The largest seed: those of torch have 64 bits.
_SEED = 2**64
# Arguments that are sequences of indices. A module in their place can be iterated over without end.
_INDICES = {"active_dims", "columns", "indices", "outputs"}


class Limits:
    """The numbers that a file may contain.

    Args:
        tensors: The tensors in the file.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._elements = sum(tensor.numel() for tensor in tensors)
        # Of each module so far: the number of modules within it, itself included, and their depth.
        self._modules: list[tuple[int, int]] = []

    def add_module(self, entry: Mapping[str, Any]) -> None:
        """Check the class and the arguments of a module before it is made.

        Raises:
            ValueError: If they ask for more than a file of this size can need, or are of another kind.
        """
        positional, named = entry["positional"], entry["named"]
        for name, value in [("positional", positional), *named.items()]:
            if name in _INDICES and next(_modules(value), None) is not None:
                raise ValueError(f"expected indices ({name}), got a module")
            if name.endswith("_shape") and value is not None and "size" not in value:
                raise ValueError(f"expected sizes of axes ({name}), got {value}")
            largest = _SEED if name == "seed" else max(_NUMBER, self._elements)
            for number in _integers(value):
                _check(abs(number), largest, name)
        # Constructors make tensors with these axes, those of other libraries also with one axis for each
        # number that is not an index. What those of this package would compute from numbers is in the
        # file.
        ours = entry["class"].startswith("gp_distributions.")
        arguments = [positional, *(value for name, value in named.items() if name not in _INDICES)]
        counts = [abs(count) for value in arguments for count in _axes(value, numbers=not ours)]
        product = math.prod(max(1, count) for count in counts)
        _check(product, max(_ELEMENTS, self._elements), "elements of a tensor")
        parts = [self._modules[number] for number in _modules([positional, *named.values()])]
        modules, depth = 1 + sum(n for n, _ in parts), 1 + max((d for _, d in parts), default=0)
        _check(modules, _MODULES, "modules within a module")
        _check(depth, _DEPTH, "modules one within the other")
        self._modules.append((modules, depth))

    def check_expanded(self, shape: Sequence[int]) -> None:
        """Check the shape to which a tensor is expanded.

        Raises:
            ValueError: If it has more elements than a file of this size can need.
        """
        limit = _NUMBER + _EXPANSION * self._elements
        _check(math.prod(map(abs, shape)), limit, "elements of an expanded tensor")


def array_of(values: Sequence[Any], dtype: str) -> NDArray[Any]:
    """Return an array whose type a file names.

    Raises:
        ValueError: If the array would be far larger than the values.
    """
    kind = np.dtype(dtype)
    _check(kind.itemsize * len(values), _BYTES, "bytes of an array")
    return np.array(values, dtype=kind)


def _check(value: int, largest: int, what: str) -> None:
    if value > largest:
        raise ValueError(f"expected at most {largest} ({what}), got {value}")


def _axes(value: Any, *, numbers: bool) -> Iterator[int]:
    """Yield the sizes of axes in an argument, and with ``numbers`` its other integers."""
    if isinstance(value, dict) and "size" in value:
        yield from _integers(value["size"])
    elif isinstance(value, dict) and "tuple" in value:
        yield from _axes(value["tuple"], numbers=numbers)
    elif isinstance(value, list):
        for item in value:
            yield from _axes(item, numbers=numbers)
    elif numbers and type(value) is int:
        yield value


def _integers(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _integers(item)


def _modules(value: Any) -> Iterator[int]:
    """Yield the numbers of the modules to which arguments refer."""
    if isinstance(value, dict) and "object" in value:
        yield value["object"]
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _modules(item)
