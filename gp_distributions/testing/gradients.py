"""Tests of gradients: they agree with finite differences, and are zero where clouds coincide."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gp_distributions.kernels import DistributionKernel
from gp_distributions.testing.base_test_case import BaseTestCase


class GradientTests(BaseTestCase):
    """Tests of derivatives with respect to points, weights and parameters."""

    def test_gradient_in_points(self) -> None:
        """The gradient with respect to points agrees with finite differences, or is zero for labels."""
        if not (self.moves_points or self.has_weights):
            self.skipTest("Rows have no gradient.")
        points, weights = self._stacked(3, 0)
        others = self._fixed_rows(2, 1)
        points.requires_grad_()

        def squared(points: Tensor) -> Tensor:
            return self.distance.squared(self.project(self.join(points, weights)), others)

        if self.moves_points:
            self._check_gradient(squared, points, what="points")
        else:
            (gradient,) = torch.autograd.grad(squared(points).sum(), points)
            self.check_zero(gradient, "The gradient of points that do not move")

    def test_gradient_in_weights(self) -> None:
        """The gradient with respect to weights agrees with finite differences."""
        self._need_moving_weights()
        points, weights = self._stacked(3, 0)
        others = self._fixed_rows(2, 1)
        self._check_gradient(
            lambda weights: self.distance.squared(self.join(points, weights), others),
            weights.requires_grad_(),
            what="weights",
        )

    def test_gradient_in_total_weight(self) -> None:
        """The gradient with respect to weights is orthogonal to the weights: only ratios matter."""
        self._need_moving_weights()
        points, weights = self._stacked(3, 0)
        weights.requires_grad_()
        squared = self.distance.squared(self.join(points, weights), self._fixed_rows(3, 1))
        (gradient,) = torch.autograd.grad(squared.sum(), weights)
        inner = float((gradient * weights.detach()).sum(-1).abs().max())
        if not inner <= self.tolerance * float(gradient.abs().max()):
            self.fail(
                f"Expected <gradient, weights> = 0, got {inner:.3g} where the largest entry of the "
                f"gradient is {float(gradient.abs().max()):.3g}."
            )

    def test_gradient_within_a_set(self) -> None:
        """The gradient of the distances between rows of one set agrees with finite differences."""
        moving, as_rows = self._moving(3)
        self._check_gradient(
            lambda x: self.distance.squared(as_rows(x)), moving, what="rows that meet each other"
        )

    def test_gradient_of_the_diagonal(self) -> None:
        """The gradient of distances with diag=True agrees with finite differences."""
        moving, as_rows = self._moving(3)
        others = self._fixed_rows(3, 1)
        self._check_gradient(
            lambda x: self.distance.squared(as_rows(x), others, diag=True),
            moving,
            what="rows with diag=True",
        )

    def test_gradient_in_parameters(self) -> None:
        """The gradient with respect to learned parameters agrees with finite differences."""
        parameters = {k: p for k, p in self.distance.named_parameters() if p.is_floating_point()}
        if not parameters:
            self.skipTest("The distance has no parameters.")
        rows, others = self._fixed_rows(2, 0), self._fixed_rows(2, 1)
        self.distance.adapt(rows)
        self.distance.requires_grad_()

        def squared(*values: Tensor) -> Tensor:
            named = dict(zip(parameters, values, strict=True))
            return torch.func.functional_call(self.distance, named, (rows, others))

        values = [p.detach().double().requires_grad_() for p in parameters.values()]
        self._check_gradient(squared, *values, what=f"parameters ({', '.join(parameters)})")

    def test_gradient_with_a_fixed_side(self) -> None:
        """The gradient does not depend on whether the other rows require one or are remembered."""
        self._need_moving()
        rows, others = self._fixed_rows(3, 0).requires_grad_(), self._fixed_rows(4, 1)
        self.distance.squared(others)
        (actual,) = torch.autograd.grad(self.distance.squared(rows, others).sum(), rows)
        both = others.clone().requires_grad_()
        (expected,) = torch.autograd.grad(self.distance.squared(rows, both).sum(), rows)
        self._check_close(actual, expected, "The gradient with a fixed side")

    def test_gradient_of_equal_sides(self) -> None:
        """If x1 and x2 are equal but only one requires a gradient, the other one is a constant."""
        self._need_moving()
        fixed = self.rows(4, sizes=(3, 8))
        moving, copied = (fixed.clone().requires_grad_() for _ in range(2))
        generator = torch.Generator().manual_seed(0)
        factors = torch.randn(4, 4, generator=generator, dtype=torch.float64)
        for remembered in (False, True):
            if remembered:
                self.distance.squared(fixed)
            actual, swapped, expected, mirrored = (
                torch.autograd.grad((factors * self.distance.squared(*sides)).sum(), moving)[0]
                for sides in (
                    (moving, fixed),
                    (fixed, moving),
                    (moving, copied),
                    (copied, moving),
                )
            )
            self._check_close(actual, expected, "The gradient in x1 of equal x1 and x2")
            self._check_close(swapped, mirrored, "The gradient in x2 of equal x1 and x2")

    def test_gradient_where_clouds_meet(self) -> None:
        """The gradient of the distance from a cloud to itself is zero, even after a square root."""
        root = DistributionKernel(self.distance, "exponential").double()
        moving, as_rows = self._moving(4)
        rows = as_rows(moving)
        fixed = rows.detach().clone()
        for others, pairs in (
            (fixed, [(2, 2)]),
            (fixed.flip(0), [(0, 3)]),
            (fixed[1:3], [(1, 0), (2, 1)]),
            (fixed[1:2], [(1, 0)]),
        ):
            for remembered in (False, True):
                if remembered:
                    self.distance.squared(others)
                for values in (
                    self.distance.squared(rows, others),
                    self.distance.squared(others, rows).mT,
                    root(rows, others).to_dense(),
                    root(others, rows).to_dense().mT,
                ):
                    for pair in pairs:
                        self._check_no_gradient(values[pair], moving)
        others = torch.cat([fixed[:2], fixed[2:].flip(0)])
        for values in (
            self.distance.squared(rows, others, diag=True),
            root(rows, others, diag=True),
        ):
            self._check_no_gradient(values[:2], moving)

    def test_gradient_of_zeros(self) -> None:
        """Distances that are all zero have a gradient of zero rather than no gradient."""
        self._need_moving()
        self.distance.requires_grad_()
        for num in (1, 3):
            moving, as_rows = self._moving(num)
            rows = as_rows(moving)
            for diag in (False, True):
                for others in (rows, rows.detach().clone()):
                    for x1, x2 in ((rows, others), (others, rows)):
                        squared = self.distance.squared(x1, x2, diag=diag)
                        zeros = squared if diag else squared.diagonal()
                        self._check_no_gradient(zeros, moving, *self.distance.parameters())
            self._check_no_gradient(self.distance.squared(rows[:0], rows), moving)

    def test_gradient_of_copies(self) -> None:
        """The gradient of a row does not flow to copies of this row in the same set."""
        self._need_moving()
        rows = self._fixed_rows(1, 0).repeat(3, 1).requires_grad_()
        others = self._fixed_rows(3, 1)
        (gradient,) = torch.autograd.grad(self.distance.squared(rows, others)[1].sum(), rows)
        if not bool(gradient[1].any()):
            self.fail(
                "The row that is compared has no gradient, although copies of it stand beside it."
            )
        self.check_zero(gradient[[0, 2]], "The gradient in copies of the row that is compared")

    def test_gradient_of_coincident_clouds(self) -> None:
        """Gradients are finite if all clouds are equal."""
        points, weights = self._stacked(4, 0)
        self._check_finite(points[:1].repeat(4, 1, 1), weights[:1].repeat(4, 1))

    def test_gradient_of_single_atoms(self) -> None:
        """Gradients are finite if clouds have a single atom."""
        points, weights = self._stacked(4, 0)
        self._check_finite(points[:, :1], weights[:, :1])

    def test_gradient_of_ties(self) -> None:
        """Gradients are finite if atoms of the same or different clouds have equal coordinates."""
        self.need_weights()
        points, weights = self._stacked(4, 0)
        if self.distance.inputs == "clouds":
            points = points.round()
        points[:, 3:] = points[:, :3].flip(0)
        self._check_finite(points, torch.ones_like(weights))

    def test_gradient_of_split_atoms(self) -> None:
        """Gradients are finite if atoms of a cloud coincide."""
        self.need_weights()
        points, weights = self._stacked(4, 0)
        self._check_finite(
            points.repeat_interleave(2, dim=-2), weights.repeat_interleave(2, dim=-1)
        )

    def test_gradient_of_padding(self) -> None:
        """Gradients are finite if atoms have weight zero."""
        self.need_weights()
        points, weights = self._stacked(4, 0)
        self._check_finite(points, torch.cat([weights[:, :3], 0 * weights[:, 3:]], dim=-1))

    def _need_moving(self) -> None:
        if not (self.moves_points or (self.has_weights and self.differentiable_in_weights)):
            self.skipTest("Rows have no gradient.")

    def _need_moving_weights(self) -> None:
        self.need_weights()
        if not self.differentiable_in_weights:
            self.skipTest("Weights have no gradient.")

    def _stacked(self, num: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the points and weights of random clouds of six atoms, each as one tensor."""
        clouds = self.create_clouds(num, seed=seed, sizes=(6, 6))
        points, weights = zip(*clouds, strict=True)
        return torch.stack(points), torch.stack(weights)

    def _fixed_rows(self, num: int, seed: int) -> Tensor:
        return self.join(*self._stacked(num, seed))

    def _moving(self, num: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return a tensor that requires a gradient, and a function that converts it to rows."""
        self._need_moving()
        points, weights = self._stacked(num, 0)
        if not self.moves_points:
            return weights.requires_grad_(), lambda weights: self.join(points, weights)
        if not self.differentiable_in_weights:
            return points.requires_grad_(), lambda points: self.project(self.join(points, weights))
        return self.join(points, weights).requires_grad_(), self.project

    def _check_gradient(self, function: Callable[..., Tensor], *tensors: Tensor, what: str) -> None:
        """Compare the gradient of a function with finite differences."""
        try:
            torch.autograd.gradcheck(
                function, tensors, rtol=self.gradient_tolerance, atol=self.gradient_tolerance / 100
            )
        except RuntimeError as error:  # the base class of GradcheckError
            self.fail(f"The gradient of {what} differs from finite differences. {error}")

    def _check_close(self, actual: Tensor, expected: Tensor, what: str) -> None:
        difference = (actual - expected).abs()
        if not bool((difference <= 1e-12 + 1e-10 * expected.abs()).all()):
            self.fail(f"{what} is wrong by up to {float(difference.max()):.3g}.")

    def _check_no_gradient(self, values: Tensor, *tensors: Tensor) -> None:
        for gradient in torch.autograd.grad(values.sum(), tensors, retain_graph=True):
            self.check_zero(gradient, "The gradient where a cloud meets itself")

    def _check_finite(self, points: Tensor, weights: Tensor) -> None:
        """Fail unless the gradients of squared distances and of ``exp(-d)`` are finite."""
        self._need_moving()
        rows = self.join(points, weights).requires_grad_()
        self.distance.requires_grad_()
        tensors = [rows, *self.distance.parameters()]
        root = DistributionKernel(self.distance, "exponential")
        for x2 in (rows, rows.detach().clone(), rows.detach().flip(0)):
            for name, values in (
                ("squared distances", self.distance.squared(rows, x2)),
                ("exp(-d)", root(rows, x2).to_dense()),
            ):
                gradients = torch.autograd.grad(values.sum(), tensors, allow_unused=True)
                if not all(bool(g.isfinite().all()) for g in gradients if g is not None):
                    self.fail(f"Expected a finite gradient of {name}, got NaN or infinity.")
