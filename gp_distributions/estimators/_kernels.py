"""Distances and kernels from the parameters of estimators."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

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
from gp_distributions.estimators._samples import as_rows
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
_OF_THE_REFERENCE = ("size", "method", "seed")


def make_distance(
    distance: str | Distance, options: Options, training: Distributions, inputs: str
) -> Distance:
    """A distance of its own for an estimator.

    Args:
        distance: The name of one, or one that is copied.
        options: Keyword options of a named one. Those that need a reference place it by the training
            clouds, with the options of :meth:`ReferenceMeasure.from_data`.
        training: The training distributions.
        inputs: What they are.

    Returns:
        The distance.

    Raises:
        TypeError: If ``distance`` is neither of the two.
        ValueError: If there is no distance of that name, options come with a distance, or a given
            distance is of another dimension or reads other inputs, such as numbers of objects.
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
        raise ValueError(f"The distance {distance!r} is between clouds, got {inputs}.")
    of_reference = {name: given.pop(name) for name in _OF_THE_REFERENCE if name in given}
    reference = ReferenceMeasure.from_data(training, **of_reference)
    return _TO_A_REFERENCE[distance](reference, **given)


def refuse_indices(module: torch.nn.Module) -> None:
    """Raise where a distance is between numbered objects, which estimators do not read.

    Raises:
        ValueError: If one is.
    """
    for child in module.modules():
        if isinstance(child, Distance) and child.inputs == "indices":
            raise ValueError(
                f"Expected a distance between distributions, got {type(child).__name__}, which is "
                "between numbered objects. Give DistributionGP their numbers, or a machine of "
                'scikit-learn with kernel="precomputed" the matrix kernel(numbers).to_dense().'
            )


def make_kernel(
    distance: Distance,
    profile: str | Profile,
    lengthscale: float | str,
    training: Distributions,
) -> DistributionKernel:
    """A profile of a distance, at a lengthscale.

    Args:
        distance: The distance, which the kernel keeps.
        profile: The name of a profile, or one that is copied.
        lengthscale: The lengthscale, or ``"median"``: the median distance between training
            distributions that differ; 1 if none do.
        training: The training distributions.

    Returns:
        The kernel, in double precision.

    Raises:
        ValueError: If the lengthscale is neither positive nor ``"median"``.
    """
    kernel = DistributionKernel(distance, copy.deepcopy(profile)).double()
    if lengthscale == "median":
        with torch.no_grad():
            squared = distance.squared(as_rows(training))
        positive = squared[torch.ones_like(squared).triu(1).bool() & (squared > 0)]
        value = positive.median().sqrt() if positive.numel() else squared.new_ones(())
    elif isinstance(lengthscale, str) or not lengthscale > 0:
        raise ValueError(f'Expected lengthscale > 0 or "median", got {lengthscale!r}.')
    else:
        value = torch.tensor(float(lengthscale), dtype=torch.float64)
    kernel.lengthscale = value
    return kernel
