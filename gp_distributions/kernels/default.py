"""The distance and the kernel that models have by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel

from gp_distributions.distances.base import Distance
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.sized import SizedDistance
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.standardized import StandardizedDistance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures.kinds import KINDS, Distributions
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.layout import Block

_NO_BATCH = torch.Size()


def default_kernel(X: Distributions | Block, batch_shape: torch.Size = _NO_BATCH) -> ScaleKernel:
    """Make the kernel that models have if none is passed: :func:`default_distance` in Matern 5/2.

    Args:
        X: Training inputs, or the layout of their rows.
        batch_shape: Batch shape of the lengthscale and the outputscale.
    """
    kernel = DistributionKernel(default_distance(X), batch_shape=batch_shape)
    return ScaleKernel(kernel, batch_shape=batch_shape)


def default_distance(X: Distributions | Block) -> StandardizedDistance:
    """Make the distance that models have if none is passed.

    It is the sliced Wasserstein distance, for mixtures the maximum mean discrepancy, is
    :func:`standardized`, and sees the sizes of bags: :func:`sized`.

    Args:
        X: Training inputs, or the layout of their rows.
    """
    kind = X.kind if isinstance(X, Block) else KINDS[type(X)]
    distance = MMD if kind == "mixtures" else SlicedWasserstein
    return standardized(sized(distance(X.dim, inputs=kind), X), X)


def standardized(
    distance: Distance, X: Distributions | Block, scales: Sequence[float] = ()
) -> StandardizedDistance:
    """Measure each coordinate in the spread of the training atoms, positions in one spread together.

    Args:
        distance: A distance that was made for the user, who did not choose units. It reads coordinates.
        X: Training inputs, or the layout of their rows.
        scales: By how much each coordinate counts beyond its spread. By default, all count alike, and
            coordinates that rotate together always do.
    """
    found = StandardizedDistance(distance, **geometry_of(X))
    if len(scales) and not distance.rotating:
        found.scales.copy_(torch.as_tensor(scales))
    return found


def sized(distance: Distance, X: Distributions | Block) -> Distance:
    """Let a distance see the sizes of bags, as a :class:`SizedDistance`, if they vary.

    Args:
        distance: A distance that was made for the user.
        X: Training inputs, or the layout of their rows. The number of points of a shape does not count.
    """
    if isinstance(X, PointClouds) and not X.geometric and int(X.sizes.min()) < int(X.sizes.max()):
        return SizedDistance(distance)
    return distance


def geometry_of(X: object) -> dict[str, Any]:
    """Return what a :class:`StandardizedDistance` needs to know of the coordinates of inputs."""
    return {
        "geometric": getattr(X, "geometric", False),
        "num_normals": getattr(X, "num_normals", 0),
    }


def in_spread(X: PointClouds, scales: Sequence[float] = ()) -> PointClouds:
    """Return clouds as :func:`standardized` distances with these scales see them, for a reference."""
    distance = standardized(SlicedWasserstein(X.dim), X, scales)
    distance.adapt(X.pack())
    return PointClouds(X.points * distance.multipliers.to(X.points), X.weights)
