"""Fingerprints of modules."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.priors import LogNormalPrior

from gp_distributions.distances.embedded_rows import EmbeddedRows, RowMemory
from gp_distributions.rows.fingerprint import fingerprint


class Part(torch.nn.Module):
    """A module with a parameter, a buffer, settings and a part."""

    def __init__(self, setting: object = None) -> None:
        super().__init__()
        self.setting = setting
        self._private = 1
        self.weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.register_parameter("nothing", None)
        self.register_buffer("table", torch.arange(3.0))
        self.inner = torch.nn.Linear(1, 1)
        torch.nn.init.ones_(self.inner.weight)
        torch.nn.init.ones_(self.inner.bias)
        self.memory = RowMemory()


class OtherPart(Part):
    """Another class with the same state."""


class Opaque:
    """An object without equality by value."""

    __hash__ = None  # type: ignore[assignment]


# Functions that make equal settings of each plain kind.
PLAIN: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "bool": lambda: True,
    "int": lambda: 10**6,
    "float": lambda: 0.1 + 0.2,
    "str": lambda: "".join(["a", "b"]),
    "tuple": lambda: (1, [2.0]),
    "list": lambda: [1, "a", None],
    "dict": lambda: {"a": [1], 2: np.ones(2)},
    "set": lambda: {1, "a"},
    "array": lambda: np.linspace(0, 1, 5),
    "strided array": lambda: np.arange(6.0).reshape(2, 3).T,
    "numpy number": lambda: np.float32(0.5),
    "tensor": lambda: torch.linspace(0, 1, 5),
    "strided tensor": lambda: torch.arange(6.0).reshape(2, 3).T,
    "nan": lambda: torch.tensor(torch.nan),
    "dtype": lambda: torch.float32,
    "shape": lambda: torch.Size([1, 2]),
    "modules": lambda: [Part(), Part()],
    "nested": lambda: {"a": [(1, {"b": torch.ones(2)})]},
}

CHANGES: dict[str, Callable[[Part], object]] = {
    "setting": lambda part: setattr(part, "setting", [1, 2, 4]),
    "setting in place": lambda part: part.setting.append(4),
    "type of a setting": lambda part: setattr(part, "setting", (1, 2, 3)),
    "type of a number": lambda part: setattr(part, "setting", [1.0, 2, 3]),
    "private setting": lambda part: setattr(part, "_private", 2),
    "another setting": lambda part: setattr(part, "another", None),
    "setting removed": lambda part: delattr(part, "_private"),
    "parameter": lambda part: part.weight.data.add_(1),
    "parameter set": lambda part: setattr(part, "weight", torch.nn.Parameter(torch.ones(3))),
    "parameter removed": lambda part: setattr(part, "weight", None),
    "parameter added": lambda part: setattr(part, "nothing", torch.nn.Parameter(torch.ones(1))),
    "one bit of a parameter": lambda part: part.weight.data[1].mul_(1 + 2.0**-52),
    "buffer": lambda part: part.table.add_(1),
    "buffer set": lambda part: setattr(part, "table", torch.arange(4.0)),
    "shape of a buffer": lambda part: setattr(part, "table", part.table[None]),
    "dtype": lambda part: part.half(),
    "dtype of a buffer": lambda part: setattr(part, "table", part.table.double()),
    "parameter of a part": lambda part: part.inner.weight.data.zero_(),
    "setting of a part": lambda part: setattr(part.inner, "in_features", 2),
    "part": lambda part: setattr(part, "inner", torch.nn.Identity()),
    "part removed": lambda part: setattr(part, "inner", None),
}


class TestFingerprint:
    @pytest.mark.parametrize("kind", PLAIN)
    def test_is_that_of_copies_and_of_equal_settings(self, kind: str) -> None:
        part = Part(PLAIN[kind]())
        first = fingerprint(part)
        for other in (
            part,
            Part(PLAIN[kind]()),
            copy.deepcopy(part),
            pickle.loads(pickle.dumps(part)),
        ):
            assert fingerprint(other) == first
            assert hash(fingerprint(other)) == hash(first)

    def test_leaves_priors_out(self) -> None:
        kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 1.0))
        other = copy.deepcopy(kernel)
        kernel.lengthscale_prior.log_prob(kernel.lengthscale)  # stores the inverse of a transform
        assert fingerprint(other) == fingerprint(kernel)
        other.lengthscale = 2.0
        assert fingerprint(other) != fingerprint(kernel)

    def test_tells_settings_apart(self) -> None:
        for first in PLAIN:
            for second in PLAIN:
                same = fingerprint(Part(PLAIN[first]())) == fingerprint(Part(PLAIN[second]()))
                assert same == (first == second)

    @pytest.mark.parametrize("change", CHANGES)
    def test_notices_changes(self, change: str) -> None:
        part = Part([1, 2, 3])
        before = fingerprint(part)
        CHANGES[change](part)
        assert fingerprint(part) != before
        assert fingerprint(copy.deepcopy(part)) == fingerprint(part)

    @pytest.mark.parametrize("name", ["array", "tensor"])
    def test_notices_changes_in_place(self, name: str) -> None:
        part = Part([PLAIN[name]()])
        before = fingerprint(part)
        part.setting[0][2] = 7
        assert fingerprint(part) != before

    def test_notices_changes_of_modules_in_lists(self) -> None:
        part = Part([Part(), Part()])
        before = fingerprint(part)
        part.setting[1].weight.data.zero_()
        assert fingerprint(part) != before

    def test_is_of_one_class(self) -> None:
        assert fingerprint(Part()) != fingerprint(OtherPart())

    def test_passes_over_what_changes_no_value(self) -> None:
        part = Part()
        before = fingerprint(part)
        table = torch.ones(2, 2)
        part.memory.remember(table, EmbeddedRows(table))
        part.requires_grad_(False)
        part.register_forward_hook(lambda *args: None)
        assert fingerprint(part) == before

    def test_does_not_depend_on_the_order_of_settings(self) -> None:
        one, other = Part(), Part()
        one.first, one.second = 1, 2
        other.second, other.first = 2, 1
        assert fingerprint(one) == fingerprint(other)

    def test_other_objects_are_equal_only_to_themselves(self) -> None:
        setting = Opaque()
        assert fingerprint(Part(setting)) == fingerprint(Part(setting))
        assert hash(fingerprint(Part(setting))) == hash(fingerprint(Part(setting)))
        assert fingerprint(Part(setting)) != fingerprint(Part(Opaque()))

    def test_keeps_other_objects_so_that_ids_are_not_reused(self) -> None:
        kept = {fingerprint(Part(Opaque())) for _ in range(50)}
        assert len(kept) == 50
