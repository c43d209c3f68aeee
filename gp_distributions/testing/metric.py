"""Tests that a distance is Hilbertian: zero from a cloud to itself, symmetric, positive definite."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.testing.base_test_case import BaseTestCase
from gp_distributions.testing.clouds import related_clouds


class MetricTests(BaseTestCase):
    """Tests of the matrix of squared distances."""

    def test_zero_to_itself(self) -> None:
        """A cloud is at distance exactly zero from itself."""
        rows = self.rows(9)
        moving = rows.clone().requires_grad_()
        for x1 in (rows, moving):
            for x2 in (None, rows, moving, rows.clone()):
                diagonal = self.distance.squared(x1, x2).diagonal()
                self.check_zero(diagonal, "Squared distances of clouds to themselves")
        self.check_zero(
            self.distance.squared(rows, diag=True),
            "Squared distances of clouds to themselves with diag=True",
        )

    def test_symmetry(self) -> None:
        """The matrix squared(x1, x2) is the transpose of squared(x2, x1), exactly within a set."""
        x1, x2 = self.rows(9), self.rows(7, seed=1)
        forth, back = self.distance.squared(x1, x2), self.distance.squared(x2, x1)
        self.check_same(forth, back.mT, "squared(x1, x2) against squared(x2, x1).mT")
        for shape in ((30,), (2, 30)):
            for tracked in (False, True):
                rows = self.rows(math.prod(shape)).unflatten(0, shape).requires_grad_(tracked)
                squared = self.distance.squared(rows).detach()
                self.check_equal(squared, squared.mT, "squared(x) against its transpose")

    def test_not_negative(self) -> None:
        """Squared distances are finite and not negative, even between nearly equal clouds."""
        clouds = self.create_clouds(40)
        rows, others = self.pack(clouds), self.rows(9, seed=1)
        sets = [(rows, None), (rows, others), (others, rows)]
        if self.has_weights:
            backwards = self.pack([(points.flip(0), weights.flip(0)) for points, weights in clouds])
            sets += [(rows, backwards), (backwards, rows)]
        for x1, x2 in sets:
            num = len(x1) if x2 is None else min(len(x1), len(x2))
            paired = self.distance.squared(x1[:num], None if x2 is None else x2[:num], diag=True)
            for squared in (self.distance.squared(x1, x2).detach(), paired.detach()):
                if not bool(((squared >= 0) & squared.isfinite()).all()):
                    smallest = float(squared.nan_to_num(-torch.inf).min())
                    self.fail(
                        "Expected squared distances that are finite and not negative, got "
                        f"{smallest:.3g} (NaN counts as -inf)."
                    )

    def test_diagonal(self) -> None:
        """diag=True gives the diagonal of the full matrix, with batch axes too."""
        x1, x2 = self.rows(24), self.rows(24, seed=1)
        for shape in ((24,), (4, 6), (2, 3, 4)):
            a, b = x1.unflatten(0, shape), x2.unflatten(0, shape)
            for tracked in (False, True):
                a = a.detach().requires_grad_(tracked)
                self.check_same(
                    self.distance.squared(a, b, diag=True),
                    self.distance.squared(a, b).diagonal(dim1=-2, dim2=-1),
                    f"diag=True against the diagonal of the matrix, rows of shape {tuple(a.shape)}",
                )

    def test_positive_definite(self) -> None:
        """exp(-d^2 / (2 l^2)) has no negative eigenvalue at short, medium and long lengthscales."""
        for rows in self._many_rows():
            squared = self.distance.squared(rows).detach()
            median = float(squared.median())
            for factor in (0.2, 1.0, 5.0):
                gram = torch.exp(squared / (-2 * factor**2 * median))
                self._check_semi_definite(
                    gram, f"exp(-d^2 / (2 l^2)) at a lengthscale of {factor} median distances"
                )

    def test_inner_products(self) -> None:
        """The matrix of inner products that follows from squared_norms has no negative eigenvalue."""
        for rows in self._many_rows():
            squared, norms = self.distance.squared(rows), self.distance.squared_norms(rows)
            if norms.shape != rows.shape[:-1]:
                self.fail(
                    f"squared_norms: expected shape {tuple(rows.shape[:-1])}, got "
                    f"{tuple(norms.shape)}."
                )
            inner = (norms.unsqueeze(-1) + norms.unsqueeze(-2) - squared) / 2
            self._check_semi_definite(
                inner, "(|x|^2 + |y|^2 - d^2(x, y)) / 2 with |x|^2 from squared_norms"
            )

    def test_embedding(self) -> None:
        """The Euclidean distance between features from embed, if it exists, equals the distance."""
        if not hasattr(self.distance, "embed"):
            self.skipTest("The distance has no embed.")
        for shape1, shape2 in (((12,), (10,)), ((3, 1, 4), (2, 5))):
            x1 = self.rows(12).unflatten(0, shape1)
            x2 = self.rows(10, seed=1).unflatten(0, shape2)
            f1, f2 = self.distance.embed(x1), self.distance.embed(x2)
            difference = f1.unsqueeze(-2) - f2.unsqueeze(-3)
            self.check_same(
                difference.square().sum(-1),
                self.distance.squared(x1, x2),
                "Squared Euclidean distances of embed against squared",
            )

    def _many_rows(self) -> list[Tensor]:
        """Return a set of rows in general position and one of clouds that have atoms in common."""
        sets = [self.rows(120)]
        if self.has_weights:
            first, second = self.create_clouds(2, seed=2, sizes=(6, 6))
            sets.append(self.pack(related_clouds(first, second)))
        return sets

    def _check_semi_definite(self, gram: Tensor, what: str) -> None:
        eigenvalues = torch.linalg.eigvalsh(gram.detach())
        if not float(eigenvalues[0]) >= -self.eigenvalue_tolerance * float(eigenvalues[-1]):
            self.fail(
                f"{what}: the Gram matrix of {len(gram)} clouds has the eigenvalue "
                f"{float(eigenvalues[0]):.3g} (the largest is {float(eigenvalues[-1]):.3g}), so the "
                "distance is not Hilbertian. If only its square root is, return the distance itself "
                "from squared."
            )
