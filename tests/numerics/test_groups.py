"""Finite groups: rotations of the plane, the checks of groups and of permuted directions."""

import math

import pytest
import torch

from gp_distributions.numerics.directions import sphere_directions
from gp_distributions.numerics.rotations import (
    checked_group,
    is_orthogonal,
    permutes_axes,
    planar_rotations,
)


@pytest.mark.parametrize("reflections", [False, True])
def test_rotations_of_the_plane(reflections: bool) -> None:
    group = planar_rotations(5, reflections=reflections)
    assert group.shape == (10 if reflections else 5, 2, 2)
    assert torch.equal(checked_group(group), group)
    assert is_orthogonal(group)
    point = torch.tensor([1.0, 0.0]).double()
    turned = group[2] @ point
    assert math.atan2(turned[1], turned[0]) == pytest.approx(4 * math.pi / 5)
    signs = torch.linalg.det(group)
    torch.testing.assert_close(signs[:5], torch.ones(5).double())
    torch.testing.assert_close(signs[5:], -torch.ones(len(group) - 5).double())


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        (torch.eye(2), "G x d x d tensor, got shape"),
        (-torch.eye(2)[None], "identity is missing"),
        (torch.eye(2).expand(2, 2, 2), "distinct matrices, got 1 equal"),
        (planar_rotations(4)[:2], "product of two of them is missing"),
        (planar_rotations(4)[:0], "G x d x d tensor, got shape"),
    ],
)
def test_rejects_what_is_not_a_group(matrices: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_group(matrices)


@pytest.mark.parametrize("reflections", [False, True])
@pytest.mark.parametrize("count", range(1, 30))
def test_equispaced_directions_are_permuted_if_the_number_divides(
    count: int, reflections: bool
) -> None:
    group = planar_rotations(count, reflections=reflections)
    assert permutes_axes(group, sphere_directions(2, 12)) == (24 % count == 0)


def test_other_maps_do_not_permute_directions() -> None:
    shear = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]]]).double()
    shear[1, 0, 1] = 1.0  # its own inverse
    assert len(checked_group(shear)) == 2
    assert not is_orthogonal(shear)
    assert not permutes_axes(planar_rotations(4), sphere_directions(2, 12)[:5])
    swap = torch.eye(3).double()[[1, 0, 2]]
    assert not permutes_axes(swap[None], sphere_directions(3, 20))
