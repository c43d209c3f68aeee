"""The distance and the kernel that models have by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel

from gp_distributions.distances.base import Distance
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.rigid_sliced_wasserstein import RigidSlicedWasserstein, can_turn
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
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


def default_distance(X: Distributions | Block) -> ScaledDistance:
    """Make the distance that models have if none is passed.

    It is the sliced Wasserstein distance, for mixtures the maximum mean discrepancy, as
    :func:`in_units_of` the inputs. Shapes in two or three dimensions may be compared in any pose.

    Args:
        X: Training inputs, or the layout of their rows.
    """
    kind = X.kind if isinstance(X, Block) else KINDS[type(X)]
    distance = MMD if kind == "mixtures" else SlicedWasserstein
    rigid = None
    if isinstance(X, PointClouds) and X.geometric and can_turn(X.dim, X.num_normals):
        rigid = RigidSlicedWasserstein(X.dim, normals=X.num_normals)
    return in_units_of(X, distance(X.dim, inputs=kind), unposed=rigid)


def in_units_of(
    X: Distributions | Block,
    distance: Distance,
    scales: Sequence[float] = (),
    *,
    sizes: bool = True,
    unposed: Distance | None = None,
) -> ScaledDistance:
    """Measure each coordinate in the spread of the training atoms, positions in one spread together.

    Args:
        X: Training inputs, or the layout of their rows.
        distance: A distance that was made for the user, who did not choose units. It reads coordinates.
        scales: By how much each coordinate counts beyond its spread. By default, all count alike, and
            coordinates that share a scale always do.
        sizes: Whether the distance sees the sizes of bags, if they vary. The number of points of a shape
            does not count.
        unposed: The distance for shapes in any pose.
    """
    if not isinstance(X, PointClouds) or X.geometric or int(X.sizes.min()) == int(X.sizes.max()):
        sizes = False
    shared = distance.rotating or getattr(X, "geometric", False)
    return ScaledDistance(
        distance,
        scales=scales if len(scales) and not shared else None,
        learn=False,
        sizes=sizes,
        unposed=unposed,
        **geometry_of(X),
    )


def geometry_of(X: object) -> dict[str, Any]:
    """Return what a :class:`ScaledDistance` needs to know of the coordinates of inputs."""
    return {
        "geometric": getattr(X, "geometric", False),
        "num_normals": getattr(X, "num_normals", 0),
    }


def in_spread(X: PointClouds, scales: Sequence[float] = ()) -> PointClouds:
    """Return clouds as distances :func:`in_units_of` them see them, for a reference."""
    distance = in_units_of(X, SlicedWasserstein(X.dim), scales)
    distance.adapt(X.pack())
    return PointClouds(X.points * distance.multipliers.detach().to(X.points), X.weights)
