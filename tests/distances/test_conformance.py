"""The public test case for distances, on every distance and setting of ``cases.py``."""

import copy
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from cases import DISTANCES, Case
from torch import Tensor

from gp_distributions import DistributionKernel
from gp_distributions.distances import Distance
from gp_distributions.testing import DistanceTestCase


class _Conformance(DistanceTestCase):
    case: Case[Distance]
    settings: ClassVar[Mapping[str, Any]] = {}

    def create_distance(self, **options: object) -> Distance:
        return self.case(**options)

    def create_clouds(self, num: int, **options: object) -> list[tuple[Tensor, Tensor]]:
        return self.case.inputs.draw(num, **options)

    # What the base class does for all distances, and users' distances inherit: chunks, devices, checks,
    # memory, copies and changes.

    def test_empty_sets(self) -> None:
        """An empty set of rows has an empty matrix of distances."""
        rows = self._rows(3)
        for x1, x2 in ((rows[:0], rows), (rows, rows[:0]), (rows[:0], rows[:0])):
            assert self.squared(x1, x2).shape == (len(x1), len(x2))
        if hasattr(self.distance, "embed"):
            assert self.distance.embed(rows[:0]).shape == (0, *self.distance.embed(rows).shape[1:])

    def test_invalid_weights(self) -> None:
        """A weight that is negative, infinite or NaN, and a cloud without weight, are errors."""
        self._need_weights()
        *clouds, (points, weights) = self.create_clouds(4, sizes=(3, 8))
        negative = torch.where(weights == weights.max(), -0.1, weights)
        alike = [torch.full_like(weights, value) for value in (0.0, torch.inf, torch.nan)]
        for wrong in (negative, *alike):
            self._check_refused(self._pack([*clouds, (points, wrong)]))

    def test_wrong_width(self) -> None:
        """Rows of a width that does not fit the dimension, or without an axis of clouds, are errors."""
        rows = self._rows(4)
        self._check_refused(torch.cat([rows, rows[:, :1]], dim=-1))
        self._check_refused(rows[0])

    def test_gradient_in_total_weight(self) -> None:
        """The gradient with respect to weights is orthogonal to the weights: only ratios matter."""
        self._need_weights()
        if not self.differentiable_in_weights:
            self.skipTest("Weights have no gradient.")
        points, weights = self._atoms(3)
        rows = self._join(points, weights.requires_grad_())
        squared = self.squared(rows, self._stacked(3, seed=1))
        (gradient,) = torch.autograd.grad(squared.sum(), weights)
        inner = (gradient * weights.detach()).sum(-1, keepdim=True)
        self._close(gradient + inner, gradient, "<gradient, weights> must be zero")

    def test_gradient_with_a_fixed_side(self) -> None:
        """The gradient does not depend on whether the other rows require one or are remembered."""
        self._moving(1)
        rows = self._rows(4, sizes=(3, 8)).requires_grad_()
        factors = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).double()

        def gradients(others: Tensor) -> list[Tensor]:
            both = self.squared(rows, others), self.squared(others, rows).mT
            sums = [(factors[:, : len(others)] * squared).sum() for squared in both]
            return [torch.autograd.grad(value, rows)[0] for value in sums]

        for others in (self._rows(3, seed=1), rows.detach().clone()):
            expected = gradients(others.clone().requires_grad_())
            for _ in range(2):
                torch.testing.assert_close(gradients(others), expected, rtol=1e-10, atol=1e-12)
                self.squared(others)  # is remembered

    def test_gradient_where_clouds_meet(self) -> None:
        """The gradient of the distance from a cloud to itself is zero, even after a square root."""
        root = DistributionKernel(self.distance, "exponential").double()
        moving, as_rows = self._moving(4)
        rows = as_rows(*moving)
        fixed = rows.detach().clone()
        half = torch.cat([fixed[:2], fixed[2:].flip(0)])
        for function in (self.squared, root.forward):
            for others, i, j in ((fixed, 2, 2), (fixed.flip(0), 0, 3), (fixed[1:2], 1, 0)):
                for _ in range(2):
                    both = function(rows, others)[i, j] + function(others, rows)[j, i]
                    self._check_no_gradient(both, moving)
                    self.squared(others)  # is remembered
            self._check_no_gradient(function(rows, half, diag=True)[:2], moving)

    def test_gradient_of_zeros(self) -> None:
        """Distances that are all zero have a gradient of zero rather than no gradient."""
        self.distance.requires_grad_()
        for num in (1, 3):
            moving, as_rows = self._moving(num)
            rows = as_rows(*moving)
            fixed = rows.detach().clone()
            tensors = [*moving, *self.distance.parameters()]
            for pair in ((rows, rows), (rows, fixed), (fixed, rows)):
                paired = self.squared(*pair, diag=True)
                self._equal(paired, 0)
                self._check_no_gradient(paired, tensors)
                self._check_no_gradient(self.squared(*pair).diagonal(), tensors)
            self._check_no_gradient(self.squared(rows[:0], rows), moving)

    def test_gradient_of_copies(self) -> None:
        """The gradient of a row does not flow to copies of this row in the same set."""
        self._moving(1)
        rows = self._stacked(1).repeat(3, 1).requires_grad_()
        squared = self.squared(rows, self._stacked(3, seed=1))
        (gradient,) = torch.autograd.grad(squared[1].sum(), rows)
        self._expect(gradient[1].any(), "The row that is compared has no gradient.")
        self._equal(gradient[[0, 2]], 0)

    def test_remembered_sets(self) -> None:
        """Results are exactly equal whether or not the distance remembers a set of rows."""
        train, test = self._train_and_test()
        fresh = self.create_distance()
        fresh.adapt(train)
        self.distance.adapt(train)
        self.squared(train)
        self._check_alike({"Expected": self.distance}, fresh, train, test)
        # Matrix products of other sizes may be rounded in another way.
        joint = torch.cat([train, test])
        fresh.clear_cache()
        self._close(self.squared(test, joint), fresh.squared(test, joint))

    def test_chunks(self) -> None:
        """The number of clouds represented and compared at a time does not change distances."""
        x1, x2 = self._rows(16), self._rows(9, seed=1)
        pairs = (x1, x2), (x1, x1)
        expected = [self.squared(*pair) for pair in pairs]
        small = copy.deepcopy(self.distance)
        small.chunk_elements, small.block_rows = 1, 7
        for pair, matrix in zip(pairs, expected, strict=True):
            self._close(small.squared(*pair), matrix)

    def test_device(self) -> None:
        """The distance moves to a GPU with to(device)."""
        if not torch.cuda.is_available():
            self.skipTest("There is no CUDA device.")
        rows = self._rows(9)
        expected = self.squared(rows)
        actual = self.distance.to("cuda").squared(rows.cuda())
        assert actual.device.type == "cuda"
        self._close(actual.cpu(), expected)

    def test_changed_rows(self) -> None:
        """Rows that are changed in place are treated as new rows."""
        train, test = self._train_and_test()
        fresh = self.create_distance()
        fresh.adapt(train)
        self.squared(train)
        self.squared(test, train)
        train.copy_(train.roll(1, 0))
        self._check_alike({"Expected": self.distance}, fresh, train, test)

    def test_changed_settings(self) -> None:
        """A distance after a change of a setting equals a distance created with this setting."""
        if not self.settings:
            self.skipTest("No settings are listed.")
        train, test = self._train_and_test()
        for name, value in self.settings.items():
            distance, fresh = self.create_distance(), self.create_distance(**{name: value})
            self._expect(
                not torch.equal(distance.squared(train), fresh.squared(train)),
                f"create_distance({name}={value!r}) gives the same distances as create_distance(): "
                "pass its options on, and list another value.",
            )
            current, new = getattr(distance, name), value
            if isinstance(current, Tensor):
                new = torch.as_tensor(value).to(current)
            if isinstance(current, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=current.requires_grad)
            setattr(distance, name, new)
            self._check_alike({name: distance}, fresh, train, test)

    def test_changed_state(self) -> None:
        """A distance forgets its results if its parameters or buffers are changed in place."""
        train, test = self._train_and_test()
        self.distance.adapt(train)
        before = self.distance.state_dict()
        for name in [name for name, tensor in before.items() if tensor.is_floating_point()]:
            after = {**before, name: 1.25 * before[name]}
            fresh = self.create_distance()
            fresh.load_state_dict(after)
            try:
                fresh.squared(train)
            except ValueError:
                continue  # the changed state is not valid
            changed = {name: self.create_distance(), f"loaded {name}": self.create_distance()}
            for distance in changed.values():
                distance.load_state_dict(before)
                distance.squared(train)
                distance.squared(test, train)
            changed[name].state_dict()[name].mul_(1.25)
            changed[f"loaded {name}"].load_state_dict(after)
            self._check_alike(changed, fresh, train, test)

    def test_copies(self) -> None:
        """Copies, and new distances that load a state, give exactly the same results."""
        train, test = self._train_and_test()
        self.squared(train)  # may choose open settings from the training rows
        loaded = self.create_distance()
        loaded.load_state_dict(self.distance.state_dict())
        copies = {"a deep copy": copy.deepcopy(self.distance), "a loaded distance": loaded}
        kind = type(self.distance)
        if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
            copies["an unpickled distance"] = pickle.loads(pickle.dumps(self.distance))
        self._check_alike(copies, self.distance, train, test)

    def _train_and_test(self) -> list[Tensor]:
        """Return two random sets of rows of equal width."""
        return [part.clone() for part in self._rows(10, sizes=(3, 8)).split(6)]

    def _check_alike(
        self,
        distances: Mapping[str, Distance],
        expected: Distance,
        train: Tensor,
        test: Tensor,
    ) -> None:
        """Fail unless all results are exactly those of another distance, also the second time."""
        batches = test.expand(2, *test.shape), train.expand(2, *train.shape)
        # The test rows come first: a copy that chose its open settings again would use these.
        calls: list[Callable[[Distance], Tensor]] = [
            lambda d: d.squared(test, train),
            lambda d: d.squared(train),
            lambda d: d.squared(test),
            lambda d: d.squared(train, test),
            lambda d: d.squared(*batches),
            lambda d: d.squared(train, train.flip(0), diag=True),
            lambda d: d.squared_norms(train),
        ]
        if hasattr(expected, "embed"):
            calls.append(lambda d: d.embed(train))
        with torch.no_grad():
            results = []
            for call in calls:
                expected.clear_cache()
                results.append(call(expected).clone())
            for what, distance in distances.items():
                for call, result in [*zip(calls, results, strict=True)] * 2:
                    actual = call(distance)
                    self._equal(actual, result, what)
                    actual.zero_()  # the caller may change a result in place

    def _check_refused(self, bad: Tensor) -> None:
        """Fail unless ``bad`` rows raise a ``ValueError``, by themselves and beside good ones."""
        rows = self._rows(4)
        calls = [
            partial(self.squared, *pair, diag=diag)
            for pair in ((bad,), (bad, rows), (rows, bad))
            for diag in (False, True)
        ]
        if hasattr(self.distance, "embed"):
            calls.append(partial(self.distance.embed, bad))
        for call in calls:
            with pytest.raises(ValueError, match="Expected"):
                call()


# unittest has no parametrisation, so each distance gets a class.
for _name, _case in DISTANCES.items():
    _class = f"Test{_name.title().replace('-', '')}"
    globals()[_class] = type(
        _class,
        (_Conformance,),
        {
            "case": _case,
            "settings": _case.settings,
            "weighted": _case.inputs.weighted,
            "moves_points": not _case.inputs.labels,
        },
    )
_Conformance.__test__ = False
del DistanceTestCase
