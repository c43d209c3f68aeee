"""The distance and the kernel that models have by default, and units where users choose them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.rigid_sliced_wasserstein import RigidSlicedWasserstein, can_turn
from gp_distributions.distances.scaled import ScaledDistance, coordinate_spread
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.priors import LENGTHSCALE, LINEAR, LogarithmPrior
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures.gaussians import KINDS, Distributions, GaussianMixtures, Gaussians
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.mixed_inputs import MixedInputs
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.layout import Block

_NO_BATCH = torch.Size()


def default_kernel(X: Distributions | Block, batch_shape: torch.Size = _NO_BATCH) -> ScaleKernel:
    r"""Make the kernel that models have if none is passed: :func:`default_distance` in Matern 5/2.

    For bags, Gaussians and mixtures it has a linear term, since many targets are averages over atoms,
    or nearly: :math:`\varphi(d^2 / \ell^2) + v \langle P, P' \rangle`. Inner products are about a point
    mass at the mean of the atoms.

    Args:
        X: Training inputs, or the layout of their rows.
        batch_shape: Batch shape of the lengthscale and the outputscale.
    """
    return ScaleKernel(default_base(X, batch_shape), batch_shape=batch_shape)


def default_base(
    X: Distributions | Block, batch_shape: torch.Size = _NO_BATCH
) -> DistributionKernel:
    """Make the default kernel without its outputscale, as a factor of a :func:`mixed_kernel`."""
    linear = not isinstance(X, Block) and not getattr(X, "geometric", False)
    return DistributionKernel(
        default_distance(X),
        lengthscale_prior=LogarithmPrior(*LENGTHSCALE, power=1.0),
        linear=linear,
        linear_variance_prior=LogarithmPrior(*LINEAR, power=-2.0) if linear else None,
        origin=centre_of(X) if linear and not isinstance(X, Block) else None,
        batch_shape=batch_shape,
    )


def centre_of(X: Distributions) -> Distributions:
    """Return a point mass at the mean of distributions, as a container of one."""
    mean, _, weights = (moment.detach() for moment in X._components())
    each = (weights.unsqueeze(-1) * mean).sum(-2) / weights.sum(-1, keepdim=True)
    point = each.reshape(-1, each.shape[-1]).mean(0).reshape(1, 1, -1)[..., : X.dim]
    if isinstance(X, PointClouds):
        return PointClouds(point.double())
    nothing = point.new_zeros(1, X.dim, X.dim)
    if isinstance(X, Gaussians):
        return Gaussians(point[0], nothing)
    return GaussianMixtures(point, nothing.unsqueeze(0), point.new_ones(1, 1))


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


# A coordinate decides alone if the others together have less than this share of the variance.
_REST = 0.01


def unit_findings(kernel: Kernel, X: Inputs | Tensor, rows: Tensor) -> tuple[str, ...]:
    """Find coordinates that carry nearly all of a distance, each in a sentence with advice.

    A coordinate carries nearly all if it has more than 99% of the summed variances of the atoms.
    Positions in a space and normals do not count, and neither do coordinates with factors of their own,
    as in a :class:`ScaledDistance`.

    Args:
        kernel: The kernel.
        X: The inputs, which tell whether coordinates are positions. A tensor does not: it has no
            findings.
        rows: Their rows as the kernel sees them.
    """
    if isinstance(X, Tensor):
        return ()
    names = X.encoding.columns.items() if isinstance(X, MixedInputs) else ()
    found = {}
    for part, block in distribution_kernels(kernel):
        name = next((name for name, columns in names if columns == block.columns), None)
        source = X.blocks.get(name or "") if isinstance(X, MixedInputs) else X
        if any(geometry_of(source).values()) or not _keeps_units(part.distance):
            continue
        variances = coordinate_spread(block, block.select(rows)).square()
        varies = variances > 0
        if int(varies.sum()) > 1 and variances.max() > (1 - _REST) * variances.sum():
            of = "" if name is None else f" of block {name!r}"
            found[block] = (
                f"Coordinate {int(variances.argmax())}{of} has more than {1 - _REST:.0%} of the "
                f"variance of all {len(variances)} coordinates, probably because of its unit, so that "
                f"{type(part.distance).__name__} hardly sees the others. Pass no kernel; or put its "
                "distance into a ScaledDistance; or normalise the clouds, with "
                "PointClouds.normalize."
            )
    return tuple(found.values())


def _keeps_units(distance: Distance) -> bool:
    """Whether a distance adds coordinates in their units, which it has not been told."""
    # A kernel between atoms may have a lengthscale for each coordinate, and so may frequencies.
    told = not isinstance(getattr(distance, "kernel", ""), str)
    told = told or getattr(distance, "measure", "") == "given"
    scaled = any(isinstance(part, ScaledDistance) for part in distance.modules())
    return distance.reads_coordinates and not (told or scaled or distance.rotating)
