"""What is said not to change when both clouds are mapped does not change."""

import pytest
import torch
from cases import DISTANCES, random_rows

from gp_distributions import MMD, SlicedWasserstein
from gp_distributions.distances import Distance
from gp_distributions.distances.joint_motions import unchanged_by
from gp_distributions.kernels import planar_rotations

GROUP = planar_rotations(5, reflections=True)
KNOWN = {
    "sw2": SlicedWasserstein(2, num_slices=20, num_quantiles=15),
    "sw1": SlicedWasserstein(2, p=1, num_slices=5),
    "mmd": MMD(2, bandwidth=1.0),
    "laplace": MMD(2, kernel="laplace", bandwidth=1.0),
    "energy": MMD(2, kernel="energy"),
    "polynomial": MMD(2, kernel="polynomial3"),
    "normalised": MMD(2, bandwidth=1.0, normalize=True),
}


@pytest.mark.parametrize("name", KNOWN)
def test_distances_that_do_not_change(name: str) -> None:
    distance = KNOWN[name]
    assert unchanged_by(distance, GROUP)
    atoms = random_rows(6).unflatten(-1, (-1, 3))
    expected = distance.squared(atoms.flatten(-2))
    for matrix in GROUP:
        moved = torch.cat([atoms[..., :2] @ matrix.mT, atoms[..., 2:]], -1).flatten(-2)
        torch.testing.assert_close(distance.squared(moved), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "distance",
    [
        SlicedWasserstein(2, num_slices=12),
        SlicedWasserstein(2, num_slices=20, sampling="random"),
        MMD(2, kernel=lambda x, y: x @ y.mT),
        *(DISTANCES[name]() for name in ("rigid", "sinkhorn", "fourier", "hellinger")),
    ],
    ids=lambda distance: type(distance).__name__,
)
def test_others_are_not_known(distance: Distance) -> None:
    assert not unchanged_by(distance, GROUP)


def test_random_levels_change_under_reflection() -> None:
    """In one dimension there is one direction, but its levels are not symmetric."""
    mirror = torch.tensor([[[1.0]], [[-1.0]]], dtype=torch.float64)
    assert unchanged_by(SlicedWasserstein(1), mirror)
    distance = SlicedWasserstein(1, num_quantiles=5, sampling="random")
    assert not unchanged_by(distance, mirror)


def test_maps_that_are_not_orthogonal() -> None:
    shear = torch.tensor([[1.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    group = torch.stack([torch.eye(2).double(), shear])
    assert not unchanged_by(MMD(2, bandwidth=1.0), group)
