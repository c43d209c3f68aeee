"""Tests of gradients: they agree with finite differences, and are zero where clouds coincide."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gp_distributions.kernels import DistributionKernel
from gp_distributions.testing.base_test_case import BaseTestCase


class GradientTests(BaseTestCase):
    """Tests of derivatives with respect to points, weights and parameters."""

    def test_gradient(self) -> None:
        """The gradient in points and weights agrees with finite differences; that of labels is zero."""
        moving, as_rows = self._moving(3)
        others = self._fixed_rows(3, 1)

        def across(x: Tensor) -> Tensor:
            return self.distance.squared(as_rows(x), others[:2])

        def paired(x: Tensor) -> Tensor:
            return self.distance.squared(as_rows(x), others, diag=True)

        self._check_gradient(across, moving, what="rows")
        self._check_gradient(paired, moving, what="rows with diag=True")
        self._check_gradient(
            lambda x: self.distance.squared(as_rows(x)), moving, what="rows that meet each other"
        )
        if not self.moves_points:
            points, weights = self._stacked(3, 0)
            squared = self.distance.squared(self.join(points.requires_grad_(), weights), others)
            (gradient,) = torch.autograd.grad(squared.sum(), points)
            self.check_zero(gradient, "The gradient of points that do not move")

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
        rows = self.rows(4, sizes=(3, 8)).requires_grad_()
        generator = torch.Generator().manual_seed(0)
        factors = torch.randn(4, 4, generator=generator, dtype=torch.float64)
        for others in (self.rows(3, seed=1), rows.detach().clone()):
            both = others.clone().requires_grad_()
            for remembered in (False, True):
                if remembered:
                    self.distance.squared(others)
                for swapped in (False, True):
                    actual, expected = (
                        torch.autograd.grad((factors[:, : len(x2)] * squared).sum(), rows)[0]
                        for x2 in (others, both)
                        for squared in [
                            self.distance.squared(x2, rows).mT
                            if swapped
                            else self.distance.squared(rows, x2)
                        ]
                    )
                    if not torch.allclose(actual, expected, rtol=1e-10, atol=1e-12):
                        wrong = float((actual - expected).abs().max())
                        self.fail(f"The gradient with a fixed side is wrong by up to {wrong:.3g}.")

    def test_gradient_where_clouds_meet(self) -> None:
        """The gradient of the distance from a cloud to itself is zero, even after a square root."""
        root = DistributionKernel(self.distance, "exponential").double()
        moving, as_rows = self._moving(4)
        rows = as_rows(moving)
        fixed = rows.detach().clone()
        for others, pair in ((fixed, (2, 2)), (fixed.flip(0), (0, 3)), (fixed[1:2], (1, 0))):
            for remembered in (False, True):
                if remembered:
                    self.distance.squared(others)
                for values in (
                    self.distance.squared(rows, others),
                    self.distance.squared(others, rows).mT,
                    root(rows, others).to_dense(),
                    root(others, rows).to_dense().mT,
                ):
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

    def test_gradient_is_finite(self) -> None:
        """Gradients are finite where clouds or atoms coincide, and for single atoms and padding."""
        self._need_moving()
        points, weights = self._stacked(4, 0)
        self._check_finite("equal clouds", points[:1].repeat(4, 1, 1), weights[:1].repeat(4, 1))
        self._check_finite("single atoms", points[:, :1], weights[:, :1])
        if not self.has_weights:
            return
        self._check_finite("copies of atoms", points.repeat(1, 2, 1), weights.repeat(1, 2))
        padded = torch.cat([weights[:, :3], 0 * weights[:, 3:]], dim=-1)
        self._check_finite("atoms of weight zero", points, padded)
        tied = points.round() if self.distance.inputs == "clouds" else points.clone()
        tied[:, 3:] = tied[:, :3].flip(0)
        self._check_finite("atoms of equal coordinates", tied, torch.ones_like(weights))

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
                function,
                tensors,
                rtol=self.gradient_tolerance,
                atol=self.gradient_tolerance / 100,
                fast_mode=True,  # along a random direction
            )
        except RuntimeError as error:  # the base class of GradcheckError
            self.fail(f"The gradient of {what} differs from finite differences. {error}")

    def _check_no_gradient(self, values: Tensor, *tensors: Tensor) -> None:
        for gradient in torch.autograd.grad(values.sum(), tensors, retain_graph=True):
            self.check_zero(gradient, "The gradient where a cloud meets itself")

    def _check_finite(self, what: str, points: Tensor, weights: Tensor) -> None:
        """Fail unless the gradients of squared distances and of ``exp(-d)`` are finite."""
        rows = self.join(points, weights).requires_grad_()
        self.distance.requires_grad_()
        tensors = [rows, *self.distance.parameters()]
        root = DistributionKernel(self.distance, "exponential")
        for x2 in (rows, rows.detach().clone(), rows.detach().flip(0)):
            for values in (self.distance.squared(rows, x2), root(rows, x2).to_dense()):
                gradients = torch.autograd.grad(values.sum(), tensors, allow_unused=True)
                if not all(bool(g.isfinite().all()) for g in gradients if g is not None):
                    self.fail(f"Expected a finite gradient at {what}, got NaN or infinity.")
