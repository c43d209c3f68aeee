"""The test case that combines all conformance tests of distances."""

from __future__ import annotations

from gp_distributions.testing.gradients import GradientTests
from gp_distributions.testing.invariances import InvarianceTests
from gp_distributions.testing.memory import MemoryTests
from gp_distributions.testing.metric import MetricTests


class DistanceTestCase(MetricTests, InvarianceTests, GradientTests, MemoryTests):
    r"""Conformance tests that every :class:`Distance` should pass.

    Subclass this test case, define :meth:`create_distance`, and run the subclass with unittest or
    pytest. The tests check the following properties:

    - Squared distances are exactly zero between a cloud and itself, symmetric, and not negative. The
      matrices of :math:`e^{-d^2 / (2 \ell^2)}` and of the inner products about the origin are
      positive semi-definite. If the distance has ``embed``, the Euclidean distance between the
      features of two clouds equals their distance.
    - Padding, the order of atoms, splitting an atom into copies, the total weight, batch axes,
      ``diag`` and chunks do not change distances. Single precision is kept. Invalid weights and
      widths raise ``ValueError``.
    - Gradients agree with finite differences. Where clouds coincide, gradients are zero or finite.
    - Remembered results, and the results of copies and of saved and loaded distances, are exactly
      those of a new computation. After a change of rows, settings, parameters or buffers, distances
      are computed again.

    Tests that do not apply to a distance are skipped.

    Attributes:
        settings: Options of the constructor, each with a value that :meth:`create_distance` does not
            use by default. A test sets each option as an attribute, and compares the result with that
            of ``create_distance(name=value)``. Default: none.
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
        ...     def create_distance(self, **kwargs):
        ...         return Fourier(2, num_frequencies=10, **kwargs)
        >>> result = unittest.TestResult()
        >>> _ = TestFourier("test_positive_definite").run(result)
        >>> result.wasSuccessful()
        True
    """

    __test__ = False
