"""Base class of the tests of a distance, with the distance, random clouds and comparisons."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.rows.clouds import join_rows
from gp_distributions.testing.clouds import (
    Clouds,
    pack_clouds,
    random_clouds,
    random_gaussians,
    random_mixtures,
)

_DRAWS: dict[str, Callable[..., Clouds]] = {
    "clouds": random_clouds,
    "gaussians": random_gaussians,
    "mixtures": random_mixtures,
}


class BaseTestCase(unittest.TestCase):
    """The methods and attributes that a subclass of ``DistanceTestCase`` may override."""

    settings: ClassVar[Mapping[str, Any]] = {}
    weighted: ClassVar[bool | None] = None
    moves_points: ClassVar[bool] = True
    differentiable_in_weights: ClassVar[bool] = True
    tolerance: ClassVar[float] = 1e-12
    coincidence_tolerance: ClassVar[float] = 1e-7
    single_precision_tolerance: ClassVar[float] = 2e-6
    eigenvalue_tolerance: ClassVar[float] = 1e-10
    gradient_tolerance: ClassVar[float] = 1e-3

    # Without this attribute, pytest would collect the class in each module that imports it.
    __test__ = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__test__" not in vars(cls):
            cls.__test__ = cls._is_complete()

    @classmethod
    def _is_complete(cls) -> bool:
        return cls.create_distance is not BaseTestCase.create_distance

    @classmethod
    def setUpClass(cls) -> None:
        """Skip classes without a distance, which unittest also finds where they are imported."""
        super().setUpClass()
        if not cls._is_complete():
            raise unittest.SkipTest(f"{cls.__name__} does not define create_distance.")

    def setUp(self) -> None:
        """Create a distance for each test."""
        super().setUp()
        self.distance = self.create_distance()

    def create_distance(self, **kwargs: Any) -> Distance:
        """Create the distance to be tested.

        Args:
            **kwargs: Options of the constructor, taken from :attr:`settings`.

        Returns:
            A new distance. Calls with the same options must return equal distances.
        """
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
        width = dim + dim * dim + int(self.has_weights)
        atoms = rows.unflatten(-1, (-1, width))
        mean, covariance, weight = atoms.split([dim, dim * dim, width - dim - dim * dim], dim=-1)
        covariance = covariance.unflatten(-1, (dim, dim))
        covariance = (covariance + covariance.mT) / 2
        return torch.cat([mean, covariance.flatten(-2), weight], dim=-1).flatten(-2)

    @property
    def has_weights(self) -> bool:
        """Whether a row is a set of weighted atoms rather than a single atom without a weight."""
        if self.weighted is None:
            return self.distance.inputs in ("clouds", "mixtures")
        return self.weighted

    def need_weights(self) -> None:
        """Skip a test that requires weighted atoms if the rows of the distance have no weights."""
        if not self.has_weights:
            self.skipTest("A row is a single atom without a weight.")

    def pack(self, clouds: Clouds, *, atoms: int | None = None) -> Tensor:
        """Convert clouds to rows, padded to ``atoms`` atoms if rows have weights."""
        if self.has_weights:
            return pack_clouds(clouds, atoms=atoms)
        return torch.stack([points.flatten() for points, _ in clouds])

    def join(self, points: Tensor, weights: Tensor) -> Tensor:
        """Combine points (``num x m x atom_dim``) and weights (``num x m``) into rows."""
        return join_rows(points, weights) if self.has_weights else points.flatten(-2)

    def rows(self, num: int, *, seed: int = 0, sizes: tuple[int, int] = (1, 40)) -> Tensor:
        """Draw random clouds with :meth:`create_clouds`, and convert them to rows."""
        return self.pack(self.create_clouds(num, seed=seed, sizes=sizes))

    def check_same(
        self, actual: Tensor, expected: Tensor, what: str, *, tolerance: float | None = None
    ) -> None:
        """Fail unless two results agree up to ``tolerance`` times the largest expected entry."""
        tolerance = self.tolerance if tolerance is None else tolerance
        if actual.shape != expected.shape:
            self.fail(f"{what}: expected shape {tuple(expected.shape)}, got {tuple(actual.shape)}.")
        if not expected.numel():
            return
        actual, expected = actual.detach(), expected.detach()
        scale = float(expected.abs().max())
        error = (actual - expected).abs()
        if not bool((error <= tolerance * scale).all()):
            error = error.nan_to_num(torch.inf)
            entry = tuple((error == error.max()).nonzero()[0].tolist())
            self.fail(
                f"{what}: entry {list(entry)} is {float(actual[entry])!r}, expected "
                f"{float(expected[entry])!r}; they differ by {float(error[entry]):.2g}, where "
                f"{tolerance * scale:.2g} is allowed."
            )

    def check_equal(self, actual: Tensor, expected: Tensor, what: str) -> None:
        """Fail unless all entries of two results are exactly equal."""
        self.check_same(actual, expected, what, tolerance=0.0)

    def check_zero(self, actual: Tensor, what: str) -> None:
        """Fail unless all entries are exactly zero."""
        if bool((actual != 0).any()):  # true of NaN too
            largest = float(actual.detach().abs().max())
            self.fail(f"{what}: expected exactly zero, got an entry of size {largest:.3g}.")
