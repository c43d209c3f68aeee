"""Tests that the results a distance remembers are correct, and that its copies are equal to it."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.testing.base_test_case import BaseTestCase


class MemoryTests(BaseTestCase):
    """Tests of distances that are computed again, computed after a change, or computed by a copy."""

    def test_remembered_sets(self) -> None:
        """Results are exactly equal whether or not the distance remembers a set of rows."""
        train, test = self._train_and_test()
        joint = torch.cat([train, test])
        self.distance.adapt(train)
        results: dict[str, Callable[[Distance], Tensor]] = {
            "squared(train)": lambda d: d.squared(train),
            "squared(test, train)": lambda d: d.squared(test, train),
            "squared(train, test)": lambda d: d.squared(train, test),
            "squared(test, train) of expanded batches": lambda d: d.squared(
                test.expand(3, *test.shape), train.expand(3, *train.shape)
            ),
            "squared(train, diag=True)": lambda d: d.squared(train, train.flip(0), diag=True),
            "squared_norms(train)": lambda d: d.squared_norms(train),
        }
        if hasattr(self.distance, "embed"):
            results["embed(train)"] = lambda d: d.embed(train)
        expected = {name: call(self._fresh(train)) for name, call in results.items()}
        across = self._fresh(train).squared(test, joint)
        self.distance.squared(train)
        for _ in range(2):
            for name, call in results.items():
                actual = call(self.distance)
                self.check_equal(actual, expected[name], f"{name} after squared(train)")
                actual.zero_()  # the caller may change a result in place
            # Matrix products of other sizes may be rounded in another way.
            actual = self.distance.squared(test, joint)
            self.check_same(actual, across, "squared(test, [train, test]) after squared(train)")

    def test_changed_rows(self) -> None:
        """Rows that are changed in place are treated as new rows."""
        train, test = self._train_and_test()
        fresh = self._fresh(train)
        self.distance.squared(train)
        self.distance.squared(test, train)
        train.copy_(train.roll(1, 0))
        self._check_alike(self.distance, fresh, train, test, "after a change of train in place")

    def test_changed_settings(self) -> None:
        """A distance after a change of a setting equals a distance created with this setting."""
        if not self.settings:
            self.skipTest("No settings are listed.")
        train, test = self._train_and_test()
        for name, value in self.settings.items():
            distance = self.create_distance()
            before = distance.squared(train)
            current, new = getattr(distance, name), value
            if isinstance(current, Tensor):
                new = torch.as_tensor(value, dtype=current.dtype, device=current.device)
            if isinstance(current, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=current.requires_grad)
            setattr(distance, name, new)
            fresh = self.create_distance(**{name: value})
            if torch.equal(before, fresh.squared(train)):
                self.fail(
                    f"create_distance({name}={value!r}) gives the same distances as create_distance(): "
                    "pass its options on, and list another value."
                )
            self._check_alike(distance, fresh, train, test, f"after a change of {name}")

    def test_changed_state(self) -> None:
        """A distance forgets its results if its parameters or buffers are changed in place."""
        train, test = self._train_and_test()
        self.distance.adapt(train)
        for name, tensor in self.distance.state_dict().items():
            if not tensor.is_floating_point():
                continue
            distance, fresh = self.create_distance(), self.create_distance()
            state = {**self.distance.state_dict(), name: 1.25 * tensor}
            fresh.load_state_dict(state)
            try:
                expected = fresh.squared(train)
            except ValueError:
                continue  # the changed state is not valid
            if not bool(expected.isfinite().all()):
                continue
            distance.load_state_dict(self.distance.state_dict())
            distance.squared(train)
            distance.squared(test, train)
            with torch.no_grad():
                distance.state_dict()[name].mul_(1.25)
            self._check_alike(distance, fresh, train, test, f"after a change of {name} in place")
            distance.load_state_dict(self.distance.state_dict())
            distance.squared(train)
            distance.load_state_dict(state)
            self._check_alike(distance, fresh, train, test, f"after {name} is loaded")

    def test_copies(self) -> None:
        """Copies, and new distances that load a state, give exactly the same results."""
        train, test = self._train_and_test()
        self.distance.squared(train)  # may choose open settings from the training rows
        loaded = self.create_distance()
        loaded.load_state_dict(self.distance.state_dict())
        copies = {"a deep copy": copy.deepcopy(self.distance), "a loaded distance": loaded}
        kind = type(self.distance)
        found: object = sys.modules.get(kind.__module__)
        for part in kind.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is kind:  # else it cannot be imported
            copies["an unpickled distance"] = pickle.loads(pickle.dumps(self.distance))
        for name, other in copies.items():
            # The test rows come first: a copy that chose its open settings again would use these.
            actual = other.squared(test, train)
            self.check_equal(actual, self.distance.squared(test, train), f"squared of {name}")
            self._check_alike(other, self.distance, train, test, f"of {name}")

    def _train_and_test(self) -> tuple[Tensor, Tensor]:
        """Return two random sets of rows of equal width."""
        rows = self.rows(10, sizes=(3, 8))
        return rows[:6].clone(), rows[6:].clone()

    def _fresh(self, train: Tensor) -> Distance:
        """Return a new distance, without remembered results, that is adapted to training rows."""
        fresh = self.create_distance()
        fresh.adapt(train)
        return fresh

    def _check_alike(
        self, distance: Distance, expected: Distance, train: Tensor, test: Tensor, when: str
    ) -> None:
        for name, args in (
            ("squared(test, train)", (test, train)),
            ("squared(train)", (train,)),
            ("squared(test)", (test,)),
        ):
            self.check_equal(distance.squared(*args), expected.squared(*args), f"{name} {when}")
