"""Tests that every distance should pass."""

from __future__ import annotations

import math
import unittest
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from gp_distributions.distances.base import Distance
from gp_distributions.kernels import DistributionKernel
from gp_distributions.rows.clouds import join_rows
from gp_distributions.testing.clouds import (
    Clouds,
    pack_clouds,
    random_clouds,
    random_gaussians,
    random_mixtures,
    related_clouds,
)

_DRAWS: dict[str, Callable[..., Clouds]] = {
    "clouds": random_clouds,
    "gaussians": random_gaussians,
    "mixtures": random_mixtures,
}
# Changes of the points and weights of a cloud that must not change the cloud.
_CHANGES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "Padding": lambda x, w: (pad(x, (0, 0, 0, 90 - len(x))), pad(w, (0, 90 - len(w)))),
    "Padding with coordinates before the atoms": lambda x, w: (
        pad(x, (0, 0, 3, 0), value=1e3),
        pad(w, (3, 0)),
    ),
    "The order of atoms": lambda x, w: (x.flip(0), w.flip(0)),
    "Splitting an atom's weight over copies": lambda x, w: (
        torch.cat([x, x[:3]]),
        torch.cat([0.3 * w[:3], w[3:], 0.7 * w[:3]]),
    ),
    "The total weight": lambda x, w: (x, 7.0 * w),
}


class DistanceTestCase(unittest.TestCase):
    r"""Conformance tests that every :class:`Distance` should pass.

    Subclass this test case, define :meth:`create_distance`, and run the subclass with unittest or
    pytest. The tests check the following properties:

    - Squared distances are exactly zero between a cloud and itself, symmetric, and not negative. The
      matrices of :math:`e^{-d^2 / (2 \ell^2)}` and of the inner products about the origin are
      positive semi-definite. If the distance has ``embed``, the Euclidean distance between the
      features of two clouds equals their distance.
    - Padding, the order of atoms, splitting an atom into copies, the total weight, batch axes and
      ``diag`` do not change distances. Single precision is kept.
    - Gradients agree with finite differences, and are finite where clouds coincide.

    Tests that do not apply to a distance are skipped.

    Attributes:
        weighted: Whether a row is a set of weighted atoms rather than a single atom without a weight.
            Default: ``None``, which means ``True`` for ``inputs="clouds"`` and ``"mixtures"``.
        moves_points: Whether distances are differentiable in the points. If ``False``, points are
            labels, and their gradient must be zero. Default: ``True``.
        differentiable_in_weights: Whether distances are differentiable in the weights. Default:
            ``True``.
        tolerance: Largest error of squared distances, relative to the largest squared distance.
            Default: 1e-12.
        coincidence_tolerance: Largest distance between two representations of one cloud, relative to
            the largest distance. Default: 1e-7.
        single_precision_tolerance: Largest relative error of squared distances in single precision.
            Default: 2e-6.
        eigenvalue_tolerance: Largest size of a negative eigenvalue that counts as rounding, relative
            to the largest eigenvalue. Default: 1e-10.
        gradient_tolerance: Largest relative error of gradients against finite differences.
            Default: 1e-3.

    Example:
        >>> import unittest
        >>> from gp_distributions import Fourier
        >>> from gp_distributions.testing import DistanceTestCase
        >>> class TestFourier(DistanceTestCase):
        ...     def create_distance(self):
        ...         return Fourier(2, num_frequencies=10)
        >>> result = unittest.TestResult()
        >>> _ = TestFourier("test_positive_definite").run(result)
        >>> result.wasSuccessful()
        True
    """

    weighted: bool | None = None
    moves_points: bool = True
    differentiable_in_weights: bool = True
    tolerance: float = 1e-12
    coincidence_tolerance: float = 1e-7
    single_precision_tolerance: float = 2e-6
    eigenvalue_tolerance: float = 1e-10
    gradient_tolerance: float = 1e-3

    # Without this attribute, pytest would collect the class in each module that imports it.
    __test__ = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__test__" not in vars(cls):
            cls.__test__ = cls.create_distance is not DistanceTestCase.create_distance

    @classmethod
    def setUpClass(cls) -> None:
        """Skip classes without a distance, which unittest also finds where they are imported."""
        super().setUpClass()
        if not cls.__test__:
            raise unittest.SkipTest(f"{cls.__name__} does not define create_distance.")

    def setUp(self) -> None:
        """Create a distance for each test."""
        super().setUp()
        self.distance = self.create_distance()
        self.squared = self.distance.squared

    def create_distance(self) -> Distance:
        """Create the distance to be tested, a new one in each call."""
        raise NotImplementedError

    def create_clouds(self, num: int, *, seed: int = 0, sizes: tuple[int, int] = (1, 40)) -> Clouds:
        """Draw random clouds that the distance accepts.

        By default, these are clouds in general position with random weights. If the distance has
        ``inputs="gaussians"`` or ``inputs="mixtures"``, they are Gaussians or mixtures of Gaussians.

        Args:
            num: Number of clouds.
            seed: Random seed. Different seeds should give different clouds.
            sizes: Smallest and largest number of atoms in a cloud.

        Returns:
            A list of pairs of points (``n x atom_dim``) and weights (``n``), in double precision.
        """
        if self.distance.inputs not in _DRAWS:
            raise NotImplementedError(
                f"Define create_clouds in {type(self).__name__}: there is no default for "
                f"inputs={self.distance.inputs!r}."
            )
        draw = _DRAWS[self.distance.inputs]
        return draw(num, dim=self.distance.dim, seed=seed, sizes=sizes)

    def project(self, rows: Tensor) -> Tensor:
        """Make rows valid again after finite differences have moved their entries.

        By default, this method makes the covariances of Gaussians and mixtures symmetric.

        Args:
            rows: A ``batch_shape x N x width`` tensor.

        Returns:
            A tensor of the same shape, differentiable in ``rows``.
        """
        dim = self.distance.dim
        if self.distance.inputs not in ("gaussians", "mixtures"):
            return rows
        columns = torch.arange(dim + dim * dim + self._has_weights)
        square = columns[dim : dim + dim * dim].view(dim, dim)
        square.copy_(square.mT.clone())
        atoms = rows.unflatten(-1, (-1, len(columns)))
        return ((atoms + atoms[..., columns]) / 2).flatten(-2)

    # A matrix of squared distances.

    def test_zero_to_itself(self) -> None:
        """A cloud is at distance exactly zero from itself."""
        rows = self._rows(9)
        moving = rows.clone().requires_grad_()
        for x1 in (rows, moving):
            for x2 in (None, rows, moving, rows.clone()):
                self._equal(self.squared(x1, x2).diagonal(), 0)
        self._equal(self.squared(rows, diag=True), 0)

    def test_symmetry(self) -> None:
        """The matrix squared(x1, x2) is the transpose of squared(x2, x1), exactly within a set."""
        x1, x2 = self._rows(9), self._rows(7, seed=1)
        self._close(self.squared(x1, x2), self.squared(x2, x1).mT)
        for shape in ((30,), (2, 30)):
            for tracked in (False, True):
                squared = self.squared(self._rows(*shape).requires_grad_(tracked))
                self._equal(squared, squared.mT)

    def test_not_negative(self) -> None:
        """Squared distances are finite and not negative, even between nearly equal clouds."""
        clouds = self.create_clouds(40)
        rows, others = self._pack(clouds), self._rows(40, seed=1)
        backwards = self._pack([(x.flip(0), w.flip(0)) for x, w in clouds])
        for x1, x2 in ((rows, others), (rows, rows), (rows, backwards), (backwards, rows)):
            for diag in (False, True):
                squared = self.squared(x1, x2, diag=diag)
                self._expect(
                    ((squared >= 0) & squared.isfinite()).all(),
                    f"Expected finite squared distances >= 0, got {squared.min().item():.3g}.",
                )

    def test_diagonal(self) -> None:
        """diag=True gives the diagonal of the full matrix, with batch axes too."""
        for shape in ((9,), (3, 4), (2, 1, 3)):
            x1, x2 = self._rows(*shape), self._rows(*shape, seed=1)
            for tracked in (False, True):
                matrix = self.squared(x1.requires_grad_(tracked), x2)
                self._close(self.squared(x1, x2, diag=True), matrix.diagonal(dim1=-2, dim2=-1))

    def test_positive_definite(self) -> None:
        """exp(-d^2 / (2 l^2)) has no negative eigenvalue at short, medium and long lengthscales."""
        for rows in self._many_rows():
            squared = self.squared(rows)
            for factor in (0.2, 1.0, 5.0):
                gram = torch.exp(squared / (-2 * factor**2 * squared.median()))
                self._check_semi_definite(gram, "exp(-d^2 / (2 l^2))")

    def test_inner_products(self) -> None:
        """The matrix of inner products that follows from squared_norms has no negative eigenvalue."""
        for rows in self._many_rows():
            norms = self.distance.squared_norms(rows)
            self.assertEqual(norms.shape, rows.shape[:-1], "shape of squared_norms")
            gram = norms.unsqueeze(-1) + norms.unsqueeze(-2) - self.squared(rows)
            self._check_semi_definite(gram, "|x|^2 + |y|^2 - d^2(x, y)")

    def test_embedding(self) -> None:
        """The Euclidean distance between features from embed, if it exists, equals the distance."""
        if not hasattr(self.distance, "embed"):
            self.skipTest("The distance has no embed.")
        for shape1, shape2 in (((12,), (10,)), ((3, 1, 4), (2, 5))):
            x1, x2 = self._rows(*shape1), self._rows(*shape2, seed=1)
            gaps = self.distance.embed(x1).unsqueeze(-2) - self.distance.embed(x2).unsqueeze(-3)
            self._close(gaps.square().sum(-1), self.squared(x1, x2))

    # The layout of clouds in rows, batches and precision.

    def test_equivalent_clouds(self) -> None:
        """Padding, the order of atoms, copies that share a weight and total weights do not matter."""
        self._need_weights()
        clouds = self.create_clouds(12)
        rows = self._pack(clouds)
        expected = self.squared(rows).detach()
        for what, change in _CHANGES.items():
            changed = self._pack([change(*cloud) for cloud in clouds])
            self._close(self.squared(changed), expected, f"{what} must not change distances")
            # The square root amplifies the rounding error of a squared distance near zero.
            across = self.squared(rows, changed).diagonal() / expected.max()
            moved = across.detach().clamp_min(0).sqrt().max().item()
            self._expect(
                moved <= self.coincidence_tolerance,
                f"{what} must not change a cloud, but moves it by {moved:.2g} largest distances.",
            )

    def test_batches(self) -> None:
        """Batch axes, which broadcast, give the same distances as a loop over the batch elements."""
        for shape1, shape2 in (((2, 1, 2), (2, 1, 2)), ((3, 1), (2,))):
            shape = torch.broadcast_shapes(shape1, shape2)
            for tracked in (False, True):
                x1 = self._rows(*shape1, 4).requires_grad_(tracked)
                x2 = self._rows(*shape2, 5, seed=1)
                all1, all2 = (x.expand(*shape, -1, -1) for x in (x1, x2))
                pairs = zip(all1.flatten(0, -3), all2.flatten(0, -3), strict=True)
                expected = torch.stack([self.squared(*pair) for pair in pairs])
                for others in (x2, all2):
                    self._close(self.squared(x1, others), expected.unflatten(0, shape))
                self._close(self.squared(all2), self.squared(all2.clone()))

    def test_single_precision(self) -> None:
        """Rows in single precision have distances in single precision."""
        x1 = self._rows(9)
        for x2 in (x1, self._rows(7, seed=1)):
            expected, actual = self.squared(x1, x2), self.squared(x1.float(), x2.float())
            self.assertEqual(actual.dtype, torch.float32)
            self._close(actual.double(), expected, tolerance=self.single_precision_tolerance)

    # Gradients.

    def test_gradient(self) -> None:
        """The gradient in points and weights agrees with finite differences; that of labels is zero."""
        moving, as_rows = self._moving(3)
        others = self._stacked(3, seed=1)
        self._check_gradient(lambda *x: self.squared(as_rows(*x), others[:2]), moving)
        self._check_gradient(lambda *x: self.squared(as_rows(*x), others, diag=True), moving)
        self._check_gradient(lambda *x: self.squared(as_rows(*x)), moving)
        if not self.moves_points:
            points, weights = self._atoms(3)
            rows = self._join(points.requires_grad_(), weights)
            self._check_no_gradient(self.squared(rows, others), [points])

    def test_gradient_in_parameters(self) -> None:
        """The gradient with respect to learned parameters agrees with finite differences."""
        parameters = {k: p for k, p in self.distance.named_parameters() if p.is_floating_point()}
        if not parameters:
            self.skipTest("The distance has no parameters.")
        rows = self._stacked(2), self._stacked(2, seed=1)
        self.distance.adapt(rows[0])
        self.distance.requires_grad_()

        def squared(*values: Tensor) -> Tensor:
            named = dict(zip(parameters, values, strict=True))
            return torch.func.functional_call(self.distance, named, rows)

        values = [p.detach().double().requires_grad_() for p in parameters.values()]
        self._check_gradient(squared, values)

    def test_gradient_is_finite(self) -> None:
        """Gradients are finite where clouds or atoms coincide, and for single atoms and padding."""
        self._moving(1)
        x, w = self._atoms(4)
        special = {
            "equal clouds": (x[:1].expand_as(x), w[:1].expand_as(w)),
            "single atoms": (x[:, :1], w[:, :1]),
        }
        if self._has_weights:
            tied = torch.cat([x[:, :3], x[:, :3].flip(0)], dim=1)
            special |= {
                "copies of atoms": (x.repeat(1, 2, 1), w.repeat(1, 2)),
                "atoms of weight zero": (x, w * (torch.arange(6) < 3)),
                "atoms in several clouds": (tied, torch.ones_like(w)),
            }
            if self.distance.inputs == "clouds":
                special["atoms of equal coordinates"] = tied.round(), torch.ones_like(w)
        self.distance.requires_grad_()
        root = DistributionKernel(self.distance, "exponential")
        for what, cloud in special.items():
            rows = self._join(*cloud).requires_grad_()
            tensors = [rows, *self.distance.parameters()]
            for x2 in (rows, rows.detach().clone(), rows.detach().flip(0)):
                total = self.squared(rows, x2).sum() + root.forward(rows, x2).sum()
                for gradient in torch.autograd.grad(total, tensors, allow_unused=True):
                    finite = gradient is None or gradient.isfinite().all()
                    self._expect(finite, f"Expected a finite gradient at {what}.")

    # Rows, and checks of results.

    @property
    def _has_weights(self) -> bool:
        """Whether a row is a set of weighted atoms rather than a single atom without a weight."""
        if self.weighted is None:
            return self.distance.inputs in ("clouds", "mixtures")
        return self.weighted

    def _need_weights(self) -> None:
        if not self._has_weights:
            self.skipTest("A row is a single atom without a weight.")

    def _pack(self, clouds: Clouds) -> Tensor:
        if self._has_weights:
            return pack_clouds(clouds)
        return torch.stack([points.flatten() for points, _ in clouds])

    def _join(self, points: Tensor, weights: Tensor) -> Tensor:
        return join_rows(points, weights) if self._has_weights else points.flatten(-2)

    def _rows(self, *shape: int, seed: int = 0, sizes: tuple[int, int] = (1, 40)) -> Tensor:
        """Draw rows of random clouds, ``shape x width``."""
        clouds = self.create_clouds(math.prod(shape), seed=seed, sizes=sizes)
        return self._pack(clouds).unflatten(0, shape)

    def _many_rows(self) -> list[Tensor]:
        """Return a set of rows in general position and one of clouds that have atoms in common."""
        sets = [self._rows(120)]
        if self._has_weights:
            sets.append(self._pack(related_clouds(*self.create_clouds(2, seed=2, sizes=(6, 6)))))
        return sets

    def _atoms(self, num: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return the points and weights of random clouds of six atoms, each as one tensor."""
        points, weights = zip(*self.create_clouds(num, seed=seed, sizes=(6, 6)), strict=True)
        return torch.stack(points), torch.stack(weights)

    def _stacked(self, num: int, *, seed: int = 0) -> Tensor:
        return self._join(*self._atoms(num, seed=seed))

    def _moving(self, num: int) -> tuple[list[Tensor], Callable[..., Tensor]]:
        """Return the points, weights or both, which require a gradient, and a function to rows."""
        points, weights = self._atoms(num)
        moves_weights = self._has_weights and self.differentiable_in_weights
        moving = [points] * self.moves_points + [weights] * moves_weights
        if not moving:
            self.skipTest("Rows have no gradient.")

        def as_rows(*given: Tensor) -> Tensor:
            x = given[0] if self.moves_points else points
            return self.project(self._join(x, given[-1] if moves_weights else weights))

        return [tensor.requires_grad_() for tensor in moving], as_rows

    def _expect(self, holds: bool | Tensor, message: str) -> None:
        if not holds:
            self.fail(message)

    def _close(
        self,
        actual: Tensor,
        expected: Tensor | float,
        what: str = "Expected",
        *,
        tolerance: float | None = None,
    ) -> None:
        """Fail unless two results agree up to ``tolerance`` times the largest expected entry."""
        if not isinstance(expected, Tensor):
            expected = torch.full_like(actual, expected)
        error = self.tolerance if tolerance is None else tolerance
        largest = expected.detach().abs().max().item() if error else 0.0
        torch.testing.assert_close(
            actual, expected, rtol=0, atol=error * largest, msg=lambda text: f"{what}: {text}"
        )

    def _equal(self, actual: Tensor, expected: Tensor | float, what: str = "Expected") -> None:
        self._close(actual, expected, what, tolerance=0.0)

    def _check_semi_definite(self, gram: Tensor, what: str) -> None:
        first, *_, last = torch.linalg.eigvalsh(gram.detach()).tolist()
        self._expect(
            first >= -self.eigenvalue_tolerance * last,
            f"The Gram matrix of {what} has the eigenvalue {first:.3g} (the largest is {last:.3g}), so "
            "the distance is not Hilbertian. If only its square root is, return the distance itself "
            "from squared.",
        )

    def _check_gradient(self, function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> None:
        """Compare the gradient of a function with finite differences along a random direction."""
        error = self.gradient_tolerance
        torch.autograd.gradcheck(function, tensors, rtol=error, atol=error / 100, fast_mode=True)

    def _check_no_gradient(self, values: Tensor, tensors: Sequence[Tensor]) -> None:
        for gradient in torch.autograd.grad(values.sum(), tensors, retain_graph=True):
            self._equal(gradient, 0, "The gradient must be zero")
