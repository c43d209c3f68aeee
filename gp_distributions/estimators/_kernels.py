"""Distances and kernels built from the parameters of estimators."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import ArrayLike

from gp_distributions.distances import (
    MMD,
    ChiSquared,
    Distance,
    Fourier,
    Hellinger,
    LinearTransport,
    RigidSlicedWasserstein,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
)
from gp_distributions.distances.transport import TransportDistance
from gp_distributions.estimators._samples import DistributionEstimator, as_array
from gp_distributions.kernels import DistributionKernel, Profile, mixed_kernel
from gp_distributions.kernels.default import in_spread, in_units_of
from gp_distributions.kernels.mixed import Structure
from gp_distributions.measures import MixedInputs, PointClouds, ReferenceMeasure
from gp_distributions.measures.gaussians import KINDS, Distributions
from gp_distributions.measures.inputs import Inputs, distributions_of
from gp_distributions.numerics.predictions import refuse_mask

Options = Mapping[str, Any] | None

_DISTANCES: dict[str, type[Distance]] = {
    "sliced_wasserstein": SlicedWasserstein,
    "rigid_sliced_wasserstein": RigidSlicedWasserstein,
    "mmd": MMD,
    "fourier": Fourier,
    "hellinger": Hellinger,
    "total_variation": TotalVariation,
    "chi_squared": ChiSquared,
    "sinkhorn": SinkhornPotential,
    "linear_transport": LinearTransport,
}


@dataclass(eq=False, repr=False)
class DistanceEstimator(DistributionEstimator):
    """Base class of estimators that compare distributions by a distance."""

    distance: str | Distance | None = "sliced_wasserstein"
    _: KW_ONLY
    options: Options = None

    def _make_distance(self, training: Distributions) -> Distance:
        """Make a distance that belongs to this estimator only.

        Args:
            training: Training distributions, which determine the reference measure if the distance
                needs one.

        Raises:
            TypeError: If ``distance`` is neither a name nor a distance.
            ValueError: If ``distance`` is an unknown name, if ``options`` are given with a
                :class:`Distance`, or if that distance has another dimension than the training
                distributions or reads other inputs, such as indices of objects.
        """
        distance = self.distance or "sliced_wasserstein"
        given, kind = dict(self.options or {}), KINDS[type(training)]
        if isinstance(distance, Distance):
            if given:
                raise ValueError(
                    "Expected options only with the name of a distance, got a Distance: pass the "
                    "options to its constructor."
                )
            if (distance.dim, distance.inputs) != (training.dim, kind):
                raise ValueError(
                    f"Expected a distance between {kind} in {training.dim} dimensions, got one "
                    f"between {distance.inputs} in {distance.dim}."
                )
            return copy.deepcopy(distance)
        if not isinstance(distance, str):
            raise TypeError(f"Expected the name of a distance or a Distance, got {distance!r}.")
        if distance not in _DISTANCES:
            names = ", ".join(_DISTANCES)
            raise ValueError(f"There is no distance {distance!r}; choose from {names}.")
        make = _DISTANCES[distance]
        if not issubclass(make, TransportDistance):
            if kind != "clouds":
                given["inputs"] = kind
            return make(training.dim, **given)
        if not isinstance(training, PointClouds):
            raise ValueError(f"Expected clouds for the distance {distance!r}, got {kind}.")
        placing = {name: given.pop(name) for name in ("size", "method", "seed") if name in given}
        return make(ReferenceMeasure.from_data(training, **placing), **given)


@dataclass(eq=False, repr=False, kw_only=True)
class ProcessEstimator(DistanceEstimator):
    """Base class of estimators that fit a Gaussian process."""

    _least_samples = 2
    _takes_mixed = True

    distance: str | Distance | None = field(default=None, kw_only=False)
    profile: str | Profile = "matern52"
    kernel: Kernel | None = None
    structure: Structure = "product"
    seed: int = 0

    def _read_targets(self, y: Any) -> ArrayLike:
        """Return targets or labels, those in tensors as an array.

        Raises:
            ValueError: If there are none, or they are a masked array.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        refuse_mask(y, "y")
        return as_array(y)

    def _make_kernel(self, training: Inputs, *, outputs: tuple[int, ...] = ()) -> Kernel | None:
        """Make the kernel, or None for the default; several outputs have their own parameters."""
        if self.kernel is not None:
            return copy.deepcopy(self.kernel)
        default = self.distance is None and not self.options and self.profile == "matern52"
        if default and (self.structure == "product" or not isinstance(training, MixedInputs)):
            return None
        batch_shape = torch.Size(size for size in outputs if size > 1)
        if isinstance(training, MixedInputs):
            kernels = {
                name: self._compare(block, batch_shape)
                for name, block in distributions_of(training).items()
                if not default
            }
            return mixed_kernel(
                training, kernels, structure=self.structure, batch_shape=batch_shape
            )
        return ScaleKernel(self._compare(training, batch_shape), batch_shape=batch_shape)

    def _compare(self, training: Distributions, batch_shape: torch.Size) -> DistributionKernel:
        """Make the kernel that ``distance``, ``options`` and ``profile`` describe."""
        profile = copy.deepcopy(self.profile)
        named = not isinstance(self.distance, Distance)
        seen = in_spread(training) if named and isinstance(training, PointClouds) else training
        distance = self._make_distance(seen)
        if named and distance.reads_coordinates:
            distance = in_units_of(training, distance, sizes=self.distance is None)
        return DistributionKernel(distance, profile, batch_shape=batch_shape)
