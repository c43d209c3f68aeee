"""The memory of distances: values are correct, have no gradient, and are computed only once."""

import copy
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds
from torch import Tensor

from gp_distributions import SlicedWasserstein
from gp_distributions.distances.embedded_rows import EmbeddedRows


class Counting(SlicedWasserstein):
    """Counts the clouds that it represents."""

    def __init__(self, p: int = 2) -> None:
        super().__init__(2, p=p, num_slices=5, num_quantiles=10)
        self.tally = SimpleNamespace(clouds=0)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        self.tally.clouds += len(points)
        return super().represent(points, weights)

    def during(self, call: Callable[[], Any]) -> int:
        """Return the number of clouds represented during a call."""
        before = self.tally.clouds
        call()
        return self.tally.clouds - before


class Stretched(Counting):
    """A distance with a learnable parameter."""

    def __init__(self, p: int = 2) -> None:
        super().__init__(p)
        self.stretch = torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        return super().represent(self.stretch * points, weights)


@pytest.fixture(params=[1, 2])
def distance(request: pytest.FixtureRequest) -> Counting:
    return Counting(request.param)


def rows(num: int, seed: int = 0) -> Tensor:
    return as_rows(random_clouds(num, seed=seed, sizes=(3, 8)), atoms=8)


def afresh(distance: Counting, *args: Tensor) -> Tensor:
    """The result of a distance that remembers nothing."""
    return copy.deepcopy(distance).squared(*args)


class TestHits:
    def test_same_clouds_again(self, distance: Counting) -> None:
        train = rows(6)
        assert distance.during(lambda: distance.squared(train)) == 6
        first = distance.squared(train)
        for call in (
            lambda: distance.squared(train),
            lambda: distance.squared(train.clone()),
            lambda: distance.squared(train, train.clone()),
            lambda: distance.squared(train.expand(4, 1, 6, -1)),
            lambda: distance.squared(train[None]),
        ):
            assert distance.during(call) == 0
            assert torch.equal(call().reshape(-1, 6, 6)[-1], first)

    def test_other_clouds_against_known_ones(self, distance: Counting) -> None:
        train, test = rows(6), rows(3, seed=1)
        distance.squared(train)
        expected = afresh(distance, test, train)
        for call, num in (
            (lambda: distance.squared(test, train), 3),
            (lambda: distance.squared(train, test).T, 3),
            (lambda: distance.squared(test.expand(4, 3, -1), train)[0], 3),
            (lambda: distance.squared(test, train.expand(4, 6, -1))[0], 3),
            (lambda: distance.squared(test.clone().requires_grad_(), train).detach(), 3),
        ):
            assert distance.during(call) == num
            torch.testing.assert_close(call(), expected)

    def test_training_clouds_repeated_in_every_batch(self, distance: Counting) -> None:
        """BoTorch puts the training rows before the test rows of every t-batch."""
        train, test = rows(6), rows(8, seed=1).unflatten(0, (4, 2))
        distance.squared(train)
        joint = torch.cat([train.expand(4, 6, -1), test], dim=-2)
        expected = afresh(distance, test, joint)
        # The new rows are on both sides, but are represented once.
        assert distance.during(lambda: distance.squared(test, joint)) == 8
        torch.testing.assert_close(distance.squared(test, joint), expected)
        other = rows(4, seed=2).unflatten(0, (4, 1))
        assert distance.during(lambda: distance.squared(other, joint)) == 12
        torch.testing.assert_close(distance.squared(other, joint), afresh(distance, other, joint))

    def test_almost_the_training_clouds(self, distance: Counting) -> None:
        """A prefix that differs in one number of one batch does not count."""
        train, test = rows(6), rows(8, seed=1).unflatten(0, (4, 2))
        distance.squared(train)
        joint = torch.cat([train.expand(4, 6, -1), test], dim=-2)
        joint[2, 4, 0] += 1e-9
        assert distance.during(lambda: distance.squared(test, joint)) == 8 + 4 * 8
        torch.testing.assert_close(distance.squared(test, joint), afresh(distance, test, joint))

    def test_only_the_last_two_sets_are_remembered(self, distance: Counting) -> None:
        sets = [rows(4, seed=seed) for seed in range(3)]
        for clouds in sets:
            distance.squared(clouds)
        for clouds, num in zip(reversed(sets), (0, 0, 4), strict=True):
            assert distance.during(lambda clouds=clouds: distance.squared(clouds)) == num


class TestGradient:
    def test_without_autograd_rows_are_remembered(self, distance: Counting) -> None:
        train = rows(6).requires_grad_()
        with torch.no_grad():
            distance.squared(train)
            assert distance.during(lambda: distance.squared(train)) == 0
        assert distance.squared(train).requires_grad

    def test_what_inference_mode_remembers_serves_autograd(self, distance: Counting) -> None:
        train, test = rows(6), rows(3, seed=1).requires_grad_()
        with torch.inference_mode():
            distance.squared(train)
        for other in (train, torch.cat([train, rows(2, seed=2)])):
            (actual,) = torch.autograd.grad(distance.squared(test, other).sum(), test)
            (expected,) = torch.autograd.grad(afresh(distance, test, other).sum(), test)
            torch.testing.assert_close(actual, expected)

    def test_nothing_keeps_the_graph_alive(self, distance: Counting) -> None:
        train = rows(6)
        distance.squared(train)
        test = rows(3, seed=1).requires_grad_()
        held = EmbeddedRows(test)
        result = distance(held, train).sum() + distance(held).sum()
        result.backward()
        kept = weakref.ref(test)
        del test, result, held
        assert kept() is None


@pytest.mark.parametrize("p", [1, 2])
def test_learned_parameters_turn_it_off(p: int) -> None:
    distance, train = Stretched(p), rows(6)
    (slope,) = torch.autograd.grad(distance.squared(train).sum(), distance.stretch)
    # Squared Hilbert distances grow by stretch ** p.
    expected = p * float(distance.squared(train).detach().sum()) / 2.0
    assert float(slope) == pytest.approx(expected)
    assert distance.during(lambda: distance.squared(train)) == 6


class TestHeldRows:
    def test_are_represented_once(self, distance: Counting) -> None:
        train, test = EmbeddedRows(rows(6)), rows(3, seed=1).requires_grad_()

        def posterior(x: object) -> Tensor:
            return distance(x, train).sum() + distance(x).square().sum()

        (expected,) = torch.autograd.grad(posterior(test), test)
        assert distance.during(lambda: posterior(EmbeddedRows(test))) == 3
        (actual,) = torch.autograd.grad(posterior(EmbeddedRows(test)), test)
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)

    def test_are_told_apart_by_object(self, distance: Counting) -> None:
        test = rows(3).requires_grad_()
        other = test.detach().clone().requires_grad_()
        squared = distance(EmbeddedRows(test), EmbeddedRows(other))
        gradients = torch.autograd.grad(squared[0, 1], (test, other), materialize_grads=True)
        assert bool(gradients[0][0].any())
        assert not bool(gradients[0][1:].any())
        assert not bool(gradients[1][0].any())

    def test_of_other_rows_are_let_go(self, distance: Counting) -> None:
        train, test = EmbeddedRows(rows(6)), EmbeddedRows(rows(3, seed=1))
        kept = weakref.ref(distance(train, test))
        del test
        gc.collect()
        assert kept() is None


def test_rows_that_begin_with_known_ones_are_not_taken_for_them(distance: Counting) -> None:
    train = rows(2)
    distance.squared(train)
    joint = torch.cat([train, rows(2, seed=1)])
    for _ in range(2):
        assert distance.squared(joint, train).shape == (4, 2)
        assert distance.squared(joint, joint.flip(0), diag=True).shape == (4,)
