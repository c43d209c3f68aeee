"""The test case for distances: each distance that is wrong fails where it should, and only there."""

import types
import unittest
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gp_distributions.distances import Distance
from gp_distributions.testing import DistanceTestCase


class Moments(Distance):
    """Means and scaled covariances: a Euclidean distance."""

    supported_inputs = ("clouds", "gaussians", "mixtures")

    def __init__(self, dim: int = 2, *, scale: float = 1.0, inputs: str = "clouds") -> None:
        super().__init__(dim, inputs=inputs)
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        mean = (weights.unsqueeze(-1) * points[..., : self.dim]).sum(-2)
        centred = points[..., : self.dim] - mean.unsqueeze(-2)
        covariance = (centred.mT @ (weights.unsqueeze(-1) * centred)).flatten(-2)
        if self.inputs != "clouds":
            covariance = covariance + (weights.unsqueeze(-1) * points[..., self.dim :]).sum(-2)
        return torch.cat([mean, covariance / self.scale.to(points)], dim=-1)


class Learned(Moments):
    """A scale that is a parameter."""

    def __init__(self, dim: int = 2, *, scale: float = 1.0, learned: bool = False) -> None:
        super().__init__(dim)
        del self.scale
        self.scale = torch.nn.Parameter(torch.tensor(scale).double(), requires_grad=learned)


class Pairwise(Moments):
    """A distance without an embedding: the sum of absolute differences of features."""

    euclidean = False

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        return self.compare(r1.unsqueeze(-2), r2.unsqueeze(-3))

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        return self.compare(r1, r2)

    def compare(self, r1: Tensor, r2: Tensor) -> Tensor:
        return (r1 - r2).abs().sum(-1)


class Parity(Distance):
    """Numbers, compared modulo five."""

    supported_inputs = ("indices",)

    def __init__(self) -> None:
        super().__init__(1, inputs="indices")

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        return (points.detach() % 5).flatten(-2)


def outcome(make: Callable[..., Distance], **attributes: Any) -> unittest.TestResult:
    """The result of all tests of a distance."""
    members = {"create_distance": lambda case: make(), **attributes}
    case = type("TestIt", (DistanceTestCase,), members)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


def failures(result: unittest.TestResult) -> dict[str, str]:
    """Names of the tests that failed, with their messages."""
    return {
        test.id().rpartition(".")[2].removeprefix("test_"): trace.strip()
        for test, trace in [*result.failures, *result.errors]
    }


class NotZero(Moments):
    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        squared = super().squared(x1, x2, diag=diag)
        if diag or x2 is not None:
            return squared
        return squared + 1e-14 * torch.eye(x1.shape[-2]).to(squared)


class NotQuiteSymmetric(Pairwise):
    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        squared = super().compare_all(r1, r2)
        return squared + 1e-15 * squared.triu() if r1 is r2 else squared


class Negative(Pairwise):
    """By inner products, whose rounding is larger than small distances."""

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        squares = r1.square().sum(-1, keepdim=True) + r2.square().sum(-1, keepdim=True).mT
        squared = squares - 2 * r1 @ r2.mT
        if r1 is not r2:
            return squared
        squared = squared.tril(-1)
        return squared + squared.mT

    def compare(self, r1: Tensor, r2: Tensor) -> Tensor:
        return (r1 - r2).square().sum(-1)


class WrongDiagonal(Pairwise):
    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        return 1.001 * super().compare_paired(r1, r2)


class SquaredSums(Pairwise):
    """exp of minus the square of a sum of absolute differences is not positive definite."""

    def compare(self, r1: Tensor, r2: Tensor) -> Tensor:
        return super().compare(r1, r2).square()


class WrongOrigin(Moments):
    def squared_norms(self, rows: Tensor) -> Tensor:
        return 0.1 * super().squared_norms(rows)


class WrongEmbedding(Moments):
    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        return lambda rows: 2 * super(WrongEmbedding, self).embed(rows)


class SeesPadding(Moments):
    """Counts atoms of weight zero at the origin."""

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        padding = ((weights == 0) & (points == 0).all(-1)).to(points).sum(-1, keepdim=True)
        return torch.cat([super().represent(points, weights), padding], dim=-1)


class SeesTotalWeight(Moments):
    """Scales points by a total that a normalisation has lost for others."""

    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        squared = super().squared(x1, x2, diag=diag)
        totals = x1.detach()[..., 2::3].sum(-1)
        return squared * (1 + 0.01 * ((totals - 1).abs() > 1e-3).any())


class WrongBroadcasting(Pairwise):
    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        if x2 is not None and x1.dim() > x2.dim() == 3 and not diag:
            x2 = x2[:1].expand_as(x2)
        return super().squared(x1, x2, diag=diag)


class Coarse(Moments):
    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        features = super().represent(points, weights)
        return features.half().to(features) if points.dtype == torch.float32 else features


class NoGradientInPoints(Moments):
    """Forgets that the mean moves with the points."""

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        return super().represent(points.detach(), weights)


def steeper(values: Tensor, factor: float) -> Tensor:
    """The same values with a gradient that is ``factor`` times as large."""
    return values.detach() + factor * (values - values.detach())


class WrongGradientWithinASet(Pairwise):
    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        return steeper(super().compare_all(r1, r2), 2.0 if r1 is r2 else 1.0)


class NotANumberAtPadding(Moments):
    """A term that is zero, but has no derivative where a weight is zero."""

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        return super().represent(points, weights) + 0 * weights.sqrt().sum(-1, keepdim=True)


class LearnedInPart(Learned):
    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        return super().represent(points, weights) * self.scale.detach().to(points)


WRONG: dict[type[Distance], set[str]] = {
    NotZero: {"zero_to_itself"},
    NotQuiteSymmetric: {"symmetry"},
    Negative: {"not_negative"},
    WrongDiagonal: {"diagonal"},
    # Both are negative definiteness of the squared distance.
    SquaredSums: {"positive_definite", "inner_products"},
    WrongOrigin: {"inner_products"},
    WrongEmbedding: {"embedding"},
    SeesPadding: {"equivalent_clouds"},
    SeesTotalWeight: {"equivalent_clouds"},
    WrongBroadcasting: {"batches"},
    Coarse: {"single_precision"},
    NoGradientInPoints: {"gradient"},
    WrongGradientWithinASet: {"gradient"},
    LearnedInPart: {"gradient_in_parameters"},
    NotANumberAtPadding: {"gradient_is_finite"},
}
MESSAGES: dict[type[Distance], str] = {
    SeesPadding: "Padding must not change a cloud",
    SquaredSums: "so the distance is not Hilbertian",
}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_wrong_distances_fail(kind: type[Distance]) -> None:
    found = failures(outcome(kind))
    assert set(found) == WRONG[kind], "\n\n".join(found.values())
    message = MESSAGES.get(kind)
    assert message is None or any(message in trace for trace in found.values())


def test_every_test_has_a_distance_that_fails_it() -> None:
    names = unittest.defaultTestLoader.getTestCaseNames(DistanceTestCase)
    assert {f"test_{name}" for found in WRONG.values() for name in found} == {*names}


def test_clouds_of_unknown_inputs_are_asked_for() -> None:
    found = failures(outcome(Parity, moves_points=False))
    assert "there is no default for inputs='indices'" in found["symmetry"]


def test_only_subclasses_with_a_distance_run() -> None:
    module = types.ModuleType("user_tests")
    kind = type("TestIt", (DistanceTestCase,), {"create_distance": lambda _: Moments()})
    vars(module).update(imported=DistanceTestCase, own=kind)
    assert [DistanceTestCase.__test__, kind.__test__] == [False, True]  # what pytest reads
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TestResult()
    for tests in suite:
        few = [test for test in tests if test.id().endswith(("test_symmetry", "test_diagonal"))]
        unittest.TestSuite(few).run(result)
    assert result.wasSuccessful()
    assert result.testsRun == 2
    assert [test.id().partition(" ")[0] for test, _ in result.skipped] == ["setUpClass"]
