"""Find out whether clouds look randomly oriented to a distance that sees rotations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.rigid_sliced_wasserstein import can_turn
from gp_distributions.distances.shared_support import SharedSupportDistance
from gp_distributions.numerics.directions import (
    distinct_axes,
    uniform_axes_p_value,
)
from gp_distributions.rows.clouds import join_rows
from gp_distributions.rows.layout import normalized

# Level of the test of uniformity.
LEVEL = 0.01
# Smallest number of clouds with a distinct axis, and their smallest share of all clouds. Fewer than half
# of the clouds have a distinct axis if their atoms are samples of an isotropic distribution.
_ENOUGH, _SHARE = 20, 0.5
# A distance sees rotations if they matter more than this multiple of the differences in shape.
_SEEN = 0.3
# Number of clouds, evenly spaced among all, that are turned.
_TURNED = 64


def may_be_turned(distance: Distance, rows: Tensor, num_normals: int = 0) -> bool:
    """Whether 20 shapes or more may lie in random pose: :func:`axes_p_value` does not reject it.

    Args:
        distance: The distance that reads the rows.
        rows: An ``N x width`` tensor.
        num_normals: Number of columns of normals after the positions.
    """
    enough = len(rows) >= _ENOUGH and _turns(distance, num_normals)
    return enough and not axes_p_value(distance, rows, num_normals) < LEVEL


def axes_p_value(distance: Distance, rows: Tensor, num_normals: int = 0) -> float:
    """Test whether the principal axes of clouds are uniform over all directions.

    Args:
        distance: The distance that reads the rows.
        rows: An ``N x width`` tensor.
        num_normals: Number of columns of normals after the positions.

    Returns:
        The p-value. NaN if the atoms do not lie in two or three dimensions, normals have no
        orientation, or fewer than 20 clouds or half of them have a distinct axis.
    """
    if not _turns(distance, num_normals):
        return math.nan
    space = distance.dim - num_normals
    points, weights = distance.block.split(rows)
    axes, distinct = distinct_axes(points[..., :space].double(), normalized(weights).double())
    count = int(distinct.sum())
    if count < max(_ENOUGH, _SHARE * len(rows)):
        return math.nan
    return uniform_axes_p_value(axes[distinct])


def _turns(distance: Distance, num_normals: int) -> bool:
    """Whether the clouds that a distance reads lie in two or three dimensions, with oriented normals."""
    clouds = distance.inputs == "clouds" and not isinstance(distance, SharedSupportDistance)
    return clouds and can_turn(distance.dim, num_normals)


def sees_random_poses(distance: Distance, rows: Tensor, num_normals: int = 0) -> bool:
    """Whether random rotations of clouds keep similar clouds apart.

    Up to 64 of the clouds are turned. All of them are moved to one mean, since differences in location
    may be larger than those in shape.

    Args:
        distance: A distance between clouds in two or three dimensions.
        rows: An ``N x width`` tensor.
        num_normals: Number of columns of normals after the positions, which turn with them.

    Returns:
        Whether the median distance between a cloud and a randomly turned copy exceeds 0.3 of the median
        distance between different clouds.
    """
    points, weights = distance.block.split(rows[:: -(-len(rows) // _TURNED)])
    space = distance.dim - num_normals
    places, normals = points[..., :space], points[..., space:].unflatten(-1, (-1, space))
    means = normalized(weights).unsqueeze(-2) @ places
    generator = torch.Generator().manual_seed(0)
    shape = (len(points), space, space)
    rotations = torch.linalg.qr(torch.randn(shape, generator=generator, dtype=torch.float64)).Q
    rotations[:, :, 0] *= torch.linalg.det(rotations).unsqueeze(-1)
    centred, middle, turn = places - means, means.mean(0), rotations.to(points).mT
    moved, turned = (
        join_rows(torch.cat([x + middle, n.flatten(-2)], dim=-1), weights)
        for x, n in ((centred, normals), (centred @ turn, normals @ turn.unsqueeze(-3)))
    )
    apart = distance.squared(moved, moved.roll(1, dims=0), diag=True).median()
    return bool(distance.squared(moved, turned, diag=True).median() > _SEEN**2 * apart)
