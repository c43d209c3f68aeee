"""Distances and kernels built from the parameters of estimators."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel

from gp_distributions.distances import (
    MMD,
    Distance,
    Fourier,
    Hellinger,
    LinearTransport,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
)
from gp_distributions.estimators._samples import DistributionEstimator
from gp_distributions.kernels import DistributionKernel, Profile
from gp_distributions.measures import PointClouds, ReferenceMeasure
from gp_distributions.measures.kinds import Distributions

Options = Mapping[str, Any] | None

_PLAIN: dict[str, type[Distance]] = {
    "sliced_wasserstein": SlicedWasserstein,
    "mmd": MMD,
    "fourier": Fourier,
    "hellinger": Hellinger,
    "total_variation": TotalVariation,
}
_TO_A_REFERENCE: dict[str, type[SinkhornPotential | LinearTransport]] = {
    "sinkhorn": SinkhornPotential,
    "linear_transport": LinearTransport,
}


class ProcessEstimator(DistributionEstimator):
    """Base class of estimators that fit a Gaussian process."""

    _least_samples = 2

    distance: str | Distance
    options: Options
    profile: str | Profile
    kernel: Kernel | None

    def _make_kernel(self, training: Distributions, *, outputs: tuple[int, ...] = ()) -> Kernel:
        """Make the kernel, with separate parameters for each of several outputs."""
        if self.kernel is not None:
            refuse_indices(self.kernel)
            return copy.deepcopy(self.kernel)
        distance = make_distance(self.distance, self.options, training, self.inputs_)
        batch_shape = torch.Size(size for size in outputs if size > 1)
        profile = copy.deepcopy(self.profile)
        base = DistributionKernel(distance, profile, batch_shape=batch_shape)
        return ScaleKernel(base, batch_shape=batch_shape)


def make_distance(
    distance: str | Distance, options: Options, training: Distributions, inputs: str
) -> Distance:
    """Make the distance of an estimator.

    Args:
        distance: Name of a distance, or a distance to copy.
        options: Keyword options of a named distance. Where it needs a reference, these include options
            of :meth:`ReferenceMeasure.from_data`, which places the reference by the training clouds.
        training: Training distributions.
        inputs: Kind of the training distributions.

    Returns:
        The distance, which no other estimator shares.

    Raises:
        TypeError: If ``distance`` is neither a name nor a distance.
        ValueError: If no distance has this name, options come with a distance, or a given distance has
            another dimension or reads other inputs, such as indices of objects.
    """
    given = dict(options or {})
    if isinstance(distance, Distance):
        refuse_indices(distance)
        if given:
            raise ValueError("Expected options only with the name of a distance, got both.")
        if (distance.dim, distance.inputs) != (training.dim, inputs):
            raise ValueError(
                f"Expected a distance between {inputs} in {training.dim} dimensions, got one between "
                f"{distance.inputs} in {distance.dim}."
            )
        return copy.deepcopy(distance)
    if not isinstance(distance, str):
        raise TypeError(f"Expected the name of a distance or a Distance, got {distance!r}.")
    if distance in _PLAIN:
        if inputs != "clouds":
            given["inputs"] = inputs
        return _PLAIN[distance](training.dim, **given)
    if distance not in _TO_A_REFERENCE:
        names = ", ".join([*_PLAIN, *_TO_A_REFERENCE])
        raise ValueError(f"There is no distance {distance!r}; choose from {names}.")
    if not isinstance(training, PointClouds):
        raise ValueError(f"Expected clouds for the distance {distance!r}, got {inputs}.")
    of_reference = {name: given.pop(name) for name in ("size", "method", "seed") if name in given}
    reference = ReferenceMeasure.from_data(training, **of_reference)
    return _TO_A_REFERENCE[distance](reference, **given)


def refuse_indices(module: torch.nn.Module) -> None:
    """Raise if a distance compares objects by index, which estimators do not read.

    Raises:
        ValueError: If one does.
    """
    for child in module.modules():
        if isinstance(child, Distance) and child.inputs == "indices":
            raise ValueError(
                f"Expected a distance between distributions, got {type(child).__name__}, which reads "
                "indices of objects. Give the indices to DistributionGP, or the matrix "
                'kernel(indices).to_dense() to a scikit-learn estimator with kernel="precomputed".'
            )


def make_kernel(
    distance: Distance, profile: str | Profile, lengthscale: float | str, training: Distributions
) -> DistributionKernel:
    """Make a kernel from a distance, a profile and a lengthscale.

    Args:
        distance: Distance, which the kernel keeps.
        profile: Name of a profile, or a profile to copy.
        lengthscale: Lengthscale, or ``"median"``: the median of the positive distances between training
            distributions, or 1 if there are none.
        training: Training distributions.

    Returns:
        The kernel, in double precision.

    Raises:
        ValueError: If the lengthscale is neither positive nor ``"median"``.
    """
    kernel = DistributionKernel(distance, copy.deepcopy(profile)).double()
    if lengthscale == "median":
        with torch.no_grad():
            squared = distance.squared(training.pack())
        positive = squared[torch.ones_like(squared).triu(1).bool() & (squared > 0)]
        kernel.lengthscale = positive.median().sqrt() if positive.numel() else 1.0
    elif isinstance(lengthscale, str) or not lengthscale > 0:
        raise ValueError(f'Expected lengthscale > 0 or "median", got {lengthscale!r}.')
    else:
        kernel.lengthscale = float(lengthscale)
    return kernel
