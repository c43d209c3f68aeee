"""The public test case for distances, on every distance and setting of ``cases.py``."""

from functools import partial

import pytest
import torch
from cases import DISTANCES, Case
from torch import Tensor

from gp_distributions import DistributionKernel
from gp_distributions.distances import Distance
from gp_distributions.testing import DistanceTestCase


class _Conformance(DistanceTestCase):
    case: Case[Distance]

    def create_distance(self, **options: object) -> Distance:
        return self.case(**options)

    def create_clouds(self, num: int, **options: object) -> list[tuple[Tensor, Tensor]]:
        return self.case.inputs.draw(num, **options)

    # What the base class does for all distances, and users' distances inherit.

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
