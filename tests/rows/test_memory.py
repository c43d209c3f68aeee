"""The memory of rows, and fingerprints of modules."""

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gp_distributions.rows.memory import Memory, fingerprint, same_tensor, unchanging_rows
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from gp_distributions.rows import memory as module


def rows(seed: int = 0, num: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(num, 6, generator=generator, dtype=torch.float64)


class TestMemory:
    def test_recalls_by_content(self) -> None:
        memory = Memory()
        memory.remember("a", rows(), 1.5)
        assert memory.recall("a", rows()) == 1.5
        for other in (rows(1), rows()[:3], rows().float(), rows()[None], rows() + 1e-15):
            assert memory.recall("a", other) is None
        assert memory.recall("b", rows()) is None

    def test_recalls_a_prefix_of_every_batch(self) -> None:
        memory = Memory()
        memory.remember("a", rows(), "value")
        joint = torch.cat([rows(), rows(1)])
        for found in (joint, joint.expand(3, 8, 6), torch.stack([joint, joint.roll(1, 0)])[:1]):
            entry = memory.recall_prefix("a", found)
            assert entry is not None
            assert entry.value == "value"
            assert torch.equal(entry.rows, rows())
        for other in (
            rows(),  # nothing follows
            joint.roll(1, 0),
            torch.stack([joint, joint.roll(1, 0)]),
            joint.float(),
            torch.nn.functional.pad(joint, (0, 3)),
        ):
            assert memory.recall_prefix("a", other) is None
        assert memory.recall_prefix("b", joint) is None

    @pytest.mark.parametrize("capacity", [1, 2, 5])
    def test_capacity(self, capacity: int) -> None:
        memory = Memory(capacity)
        for seed in range(7):
            memory.remember("a", rows(seed), seed)
        kept = [memory.recall("a", rows(seed)) for seed in range(7)]
        assert kept == [None] * (7 - capacity) + list(range(7 - capacity, 7))

    def test_drops_the_least_recently_used_value(self) -> None:
        memory = Memory(2)
        memory.remember("a", rows(0), 0)
        memory.remember("a", rows(1), 1)
        memory.recall("a", rows(0))
        memory.remember("a", rows(2), 2)
        assert [memory.recall("a", rows(seed)) for seed in range(3)] == [0, None, 2]

    def test_is_cleared(self) -> None:
        memory = Memory()
        memory.remember("a", rows(), 1)
        memory.clear()
        assert memory.recall("a", rows()) is None

    def test_keeps_its_own_rows_without_a_graph(self) -> None:
        memory, given = Memory(), rows().requires_grad_()
        memory.remember("a", given, 1)
        with torch.no_grad():
            given[0, 0] += 1
        assert memory.recall("a", given) is None
        assert memory.recall("a", rows()) == 1
        entry = memory.recall_prefix("a", torch.cat([rows(), rows()]))
        assert entry is not None
        assert not entry.rows.requires_grad

    def test_remembers_nothing_in_inference_mode(self) -> None:
        memory = Memory()
        with torch.inference_mode():
            memory.remember("a", rows(), 1)
        assert memory.recall("a", rows()) is None

    def test_recalls_in_inference_mode(self) -> None:
        memory = Memory()
        memory.remember("a", rows(), 1)
        with torch.inference_mode():
            assert memory.recall("a", rows()) == 1

    @pytest.mark.parametrize(
        "copied", [copy.copy, copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))]
    )
    def test_copies_are_empty(self, copied: Callable[[Memory], Memory]) -> None:
        memory = Memory(3)
        memory.remember("a", rows(), 1)
        other = copied(memory)
        assert other.recall("a", rows()) is None
        assert memory.recall("a", rows()) == 1
        for seed in range(4):  # of the same capacity
            other.remember("a", rows(seed), seed)
        assert [other.recall("a", rows(seed)) for seed in range(4)] == [None, 1, 2, 3]

    def test_threads(self) -> None:
        """Four threads at once never get a wrong value, nor exceed the capacity."""
        memory, num_threads, sets = Memory(3), 4, [rows(seed) for seed in range(6)]
        start = threading.Barrier(num_threads)

        def work(thread: int) -> int:
            hits = 0
            start.wait()
            for step in range(300):
                number = (thread + step // 2) % len(sets)  # each twice, the second time remembered
                value = memory.recall("a", sets[number])
                assert value in (None, number)
                hits += value is not None
                if value is None:
                    memory.remember("a", sets[number], number)
                entry = memory.recall_prefix("a", torch.cat([sets[number], sets[0]]))
                assert entry is None or entry.value == number
                assert len(memory._entries) <= 3
                if step % 100 == 50:
                    memory.clear()
            return hits

        with ThreadPoolExecutor(num_threads) as pool:
            assert sum(pool.map(work, range(num_threads))) > 0


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
        self.memory = Memory()


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
    "complex": lambda: 1j,
    "str": lambda: "".join(["a", "b"]),
    "bytes": lambda: b"a" * 3,
    "tuple": lambda: (1, [2.0]),
    "list": lambda: [1, "a", None],
    "dict": lambda: {"a": [1], 2: np.ones(2)},
    "set": lambda: {1, "a"},
    "frozenset": lambda: frozenset({1, 2}),
    "range": lambda: range(3),
    "array": lambda: np.linspace(0, 1, 5),
    "strided array": lambda: np.arange(6.0).reshape(2, 3).T,
    "numpy number": lambda: np.float32(0.5),
    "tensor": lambda: torch.linspace(0, 1, 5),
    "strided tensor": lambda: torch.arange(6.0).reshape(2, 3).T,
    "number tensor": lambda: torch.tensor(0.5),
    "empty tensor": lambda: torch.empty(0, 2),
    "nan": lambda: torch.tensor(torch.nan),
    "mask": lambda: torch.tensor([True, False]),
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
        part.memory.remember("a", rows(), 1)
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


def test_same_tensors() -> None:
    assert same_tensor(rows(), rows())
    for other in (rows(1), rows()[:3], rows().float(), rows()[None]):
        assert not same_tensor(rows(), other)


def test_rows_that_do_not_change_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a fit, which evaluates the same rows many times."""
    memory, clouds = Memory(), rows()
    memory.remember("distance", clouds, "value")
    compared = []
    same = module.same_tensor
    monkeypatch.setattr(module, "same_tensor", lambda a, b: compared.append(None) or same(a, b))
    with unchanging_rows():
        for _ in range(3):
            assert memory.recall("distance", clouds) == "value"
            with unchanging_rows():
                assert memory.recall("distance", clouds.view(4, 6)) == "value"
        assert len(compared) == 1
        before = clouds.clone()
        clouds[0, 0] += 1  # which PyTorch counts
        assert memory.recall("distance", clouds) is None
        clouds.copy_(before)
        for _ in range(10):  # tensors that come and go at one address
            other = clouds.clone()
            other[1] = rows(1)[1]
            assert memory.recall("distance", other) is None
    assert memory.recall("distance", clouds.clone()) == "value"
    assert len(compared) > 10
