"""Precomputed distances: look-up, validation, and tests of being Hilbertian."""

import math
import warnings

import numpy as np
import pytest
import torch
from cases import randn, random_rows
from torch import Tensor

from gp_distributions import DistributionKernel, SlicedWasserstein
from gp_distributions.distances.precomputed import PrecomputedDistance
from gp_distributions.warnings import DistributionWarning, NotHilbertianWarning

ROWS = random_rows(30)
SQUARED = SlicedWasserstein(2).squared(ROWS)
SQUARED = (SQUARED + SQUARED.T) / 2
FEATURES = randn(12, 4)
GRAM = FEATURES @ FEATURES.T
# In the path metric of a cycle of four points, opposite ones are 2 apart, which is not Hilbertian.
CIRCLE = torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]).double()


def indices(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def dense(distance: PrecomputedDistance, profile: str, *rows: Tensor) -> Tensor:
    kernel = DistributionKernel(distance, profile).double()
    kernel.lengthscale = torch.tensor(1.0).double()
    return kernel(*rows).to_dense().detach()


class TestLookup:
    def test_is_the_matrix(self) -> None:
        distance, everything = PrecomputedDistance(SQUARED), indices(*range(30))
        assert torch.equal(distance.squared(everything), SQUARED)
        one, other = indices(3, 29, 3), indices(7, 0)
        assert torch.equal(distance.squared(one, other), SQUARED[[3, 29, 3]][:, [7, 0]])
        assert torch.equal(
            distance.squared(one, one[[1, 2, 0]], diag=True), SQUARED[[3, 29, 3], [29, 3, 3]]
        )
        assert torch.equal(
            distance.squared(one)[0], torch.stack([SQUARED[3, i] for i in (3, 29, 3)])
        )

    @pytest.mark.parametrize("profile", ["linear", "polynomial"])
    def test_origin_is_the_mean_of_the_objects(self, profile: str) -> None:
        squared = torch.cdist(FEATURES, FEATURES).square()
        centred = FEATURES - FEATURES.mean(0)
        inner = centred @ centred.T
        expected = inner if profile == "linear" else (1 + inner).square()
        rows = indices(*range(12))
        distance = PrecomputedDistance(squared)
        torch.testing.assert_close(dense(distance, profile, rows), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(distance.squared_norms(rows), inner.diagonal())

    def test_of_a_gram_matrix(self) -> None:
        distance, rows = PrecomputedDistance.from_gram(GRAM), indices(*range(12))
        torch.testing.assert_close(distance.squared(rows), torch.cdist(*[FEATURES] * 2).square())
        torch.testing.assert_close(dense(distance, "linear", rows), GRAM)
        subset = rows[[5, 1]].expand(3, 2, 1)
        torch.testing.assert_close(
            dense(distance, "linear", subset, rows), GRAM[[5, 1]].expand(3, 2, 12)
        )


class TestHilbertian:
    def test_distances_of_the_package_are(self) -> None:
        for p in (1, 2):
            squared = SlicedWasserstein(2, p=p).squared(ROWS)
            for matrix in (squared, squared.float()):
                distance = PrecomputedDistance(matrix)  # warnings are errors
                rounding = torch.finfo(matrix.dtype).eps
                assert 0 <= distance.negative_part < 30 * rounding
                assert abs(distance.smallest_eigenvalue) < 30 * rounding * float(matrix.max())

    def test_circle_is_not(self) -> None:
        # Eigenvalues of -J D J / 2, whose eigenvectors are waves: 0 and -(1 / 2)(sum_k D_0k cos(k t)).
        matrix = CIRCLE.square()
        expected = [
            -0.5 * sum(matrix[0, k] * math.cos(k * t) for k in range(4))
            for t in (math.pi / 2, math.pi)
        ]
        assert expected[0] == pytest.approx(2.0)
        assert expected[1] == pytest.approx(-1.0)
        with pytest.warns(NotHilbertianWarning) as caught:
            distance = PrecomputedDistance(matrix)
        assert distance.smallest_eigenvalue == pytest.approx(-1.0)
        assert distance.negative_part == pytest.approx(1 / 5)
        (warning,) = caught
        for part in (
            "1 of the 4",
            "fraction 0.2 of",
            "smallest is -1",
            "largest 2",
            "squared ** beta",
        ):
            assert part in str(warning.message)
        assert issubclass(NotHilbertianWarning, DistributionWarning)

    def test_no_gram_matrix(self) -> None:
        # The centred matrix is positive semi-definite, but that about the origin is not.
        gram = torch.tensor([[0.5, -1.0], [-1.0, 0.5]]).double()
        with pytest.warns(NotHilbertianWarning, match=r"smallest is -0\.5"):
            distance = PrecomputedDistance.from_gram(gram)
        assert distance.negative_part == pytest.approx(0.25)

    def test_tolerance_passes_over_what_is_less(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            PrecomputedDistance(CIRCLE.square(), tolerance=0.21)
        with pytest.warns(NotHilbertianWarning):
            PrecomputedDistance(CIRCLE.square(), tolerance=0.19)


class TestRefuses:
    @pytest.mark.parametrize(
        ("entry", "value", "message"),
        [
            (
                (1, 2),
                9.0,
                r"squared: expected a symmetric matrix, got 9 at \[1, 2\] and 1 at \[2, 1\]",
            ),
            ((1, 1), 1e-3, r"squared: expected a zero diagonal, got 0\.001 at \[1, 1\]"),
            ((0, 3), math.nan, r"squared: expected finite numbers, got nan at \[0, 3\]"),
        ],
    )
    def test_matrices(self, entry: tuple[int, int], value: float, message: str) -> None:
        matrix = CIRCLE.clone()
        matrix[entry] = value
        with pytest.raises(ValueError, match=message):
            PrecomputedDistance(matrix)

    @pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 2), (0, 0)])
    def test_shapes(self, shape: tuple[int, ...]) -> None:
        for make in (PrecomputedDistance, PrecomputedDistance.from_gram):
            with pytest.raises(ValueError, match="T x T matrix"):
                make(np.zeros(shape))

    def test_gram_matrices_of_nothing(self) -> None:
        with pytest.raises(ValueError, match=r"gram: expected 2 G\[i, j\]"):
            PrecomputedDistance.from_gram([[1.0, 2.0], [2.0, 1.0]])
        with pytest.raises(ValueError, match="gram: expected a symmetric matrix"):
            PrecomputedDistance.from_gram([[1.0, 2.0], [0.0, 1.0]])

    def test_norms_tolerances_and_distances_below_zero(self) -> None:
        with pytest.raises(ValueError, match="Expected 4 norms"):
            PrecomputedDistance(CIRCLE, norms=[1.0, 2.0])
        with pytest.raises(ValueError, match="tolerance"):
            PrecomputedDistance(CIRCLE, tolerance=-1.0)
        with pytest.raises(ValueError, match=r"squared distances >= 0, got -1 at \[0, 1\]"):
            PrecomputedDistance(-CIRCLE)

    @pytest.mark.parametrize("value", [4.0, -1.0, 1.5, math.nan, math.inf])
    def test_what_is_not_the_number_of_an_object(self, value: float) -> None:
        distance = PrecomputedDistance(CIRCLE)
        with pytest.raises(ValueError, match=rf"from 0 to 3, but row 2 is {value:g}"):
            distance.squared(indices(0, 1, value, 9.0))
        with pytest.raises(ValueError, match=r"row \(1, 2\)"):
            distance.squared(indices(0, 1), torch.stack([indices(0, 1, 2), indices(0, 1, value)]))

    def test_rows_of_another_width(self) -> None:
        with pytest.raises(ValueError, match=r"width 1.*4 objects.*\(2, 3\)"):
            PrecomputedDistance(CIRCLE).squared(torch.zeros(2, 3).double())


class TestRounding:
    def test_is_evened_out(self) -> None:
        matrix = CIRCLE.clone()
        matrix[0, 1] += 1e-10
        matrix[2, 2] = -1e-10
        distance = PrecomputedDistance(matrix)
        assert torch.equal(distance.matrix, distance.matrix.T)
        assert torch.equal(distance.matrix.diagonal(), torch.zeros(4).double())
        torch.testing.assert_close(distance.matrix, CIRCLE, rtol=0, atol=1e-10)

    def test_of_a_gram_matrix_never_makes_distances_negative(self) -> None:
        features = torch.cat([FEATURES, FEATURES + 1e-6]) + 1e5
        distance = PrecomputedDistance.from_gram(features @ features.T)
        assert float(distance.matrix.min()) == 0.0
