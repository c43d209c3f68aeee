"""Principal axes against NumPy, and Bingham's test against simulation and Rayleigh's test."""

import math

import numpy as np
import pytest
import torch

from gp_distributions.numerics.rotations import distinct_axes, uniform_axes_p_value


def axes(num: int, dim: int, seed: int) -> torch.Tensor:
    normal = torch.from_numpy(np.random.default_rng(seed).normal(size=(num, dim)))
    return normal / normal.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("dim", [2, 3])
def test_level_is_kept(dim: int) -> None:
    values = np.array([uniform_axes_p_value(axes(40, dim, seed)) for seed in range(2000)])
    for level in (0.05, 0.25, 0.5):
        error = math.sqrt(level * (1 - level) / 2000)
        assert abs((values < level).mean() - level) < 4 * error + 0.01


def test_in_the_plane_it_is_the_test_of_rayleigh_for_doubled_angles() -> None:
    drawn = axes(30, 2, 0) + torch.tensor([0.5, 0.0])
    drawn = drawn / drawn.norm(dim=-1, keepdim=True)
    doubled = 2 * torch.atan2(drawn[:, 1], drawn[:, 0])
    resultant = torch.stack([doubled.cos(), doubled.sin()]).mean(-1).square().sum()
    assert uniform_axes_p_value(drawn) == pytest.approx(math.exp(-30 * float(resultant)))


@pytest.mark.parametrize("dim", [2, 3])
def test_finds_a_common_axis_up_to_sign(dim: int) -> None:
    drawn = axes(30, dim, 1)
    drawn[:, 0] += 3 * drawn[:, 0].sign()
    drawn = drawn / drawn.norm(dim=-1, keepdim=True)
    assert abs(float(drawn[:, 0].mean())) < 0.5
    assert uniform_axes_p_value(drawn) < 1e-6


def test_axes_of_rods_and_discs() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(3, 400, 3, generator=generator).double()
    points[0, :, 1] *= 3  # a rod
    points[1, :, 2] /= 3  # a disc
    weights = torch.rand(3, 400, generator=generator).double()
    weights /= weights.sum(-1, keepdim=True)
    found, distinct = distinct_axes(points + 7, weights)
    assert distinct.tolist() == [True, True, False]
    assert abs(float(found[0, 1])) > 0.99
    assert abs(float(found[1, 2])) > 0.99
    covariance = np.cov(points[0].numpy().T, aweights=weights[0].numpy(), ddof=0)
    expected = np.linalg.eigh(covariance)[1][:, -1]
    assert abs(expected @ found[0].numpy()) == pytest.approx(1)


def test_axes_need_a_spread_and_enough_atoms() -> None:
    line = torch.linspace(-1, 1, 100).double().unsqueeze(-1) * torch.tensor([0.6, 0.8])
    single = torch.zeros(100, 2).double() + 3
    few = line.clone()
    weights = torch.full((3, 100), 0.01).double()
    weights[2] = torch.nn.functional.one_hot(torch.tensor(50), 100)
    found, distinct = distinct_axes(torch.stack([line, single, few]), weights)
    assert distinct.tolist() == [True, False, False]
    assert abs(float(found[0] @ torch.tensor([0.6, 0.8]).double())) == pytest.approx(1)
    # Variances of 1.6 and 1: four atoms do not determine the axis, four hundred do.
    square = torch.tensor([[1.6, 0.0], [-1.6, 0.0], [0.0, 1.0], [0.0, -1.0]]).double()
    square[:, 0] /= 1.6**0.5
    for copies, enough in ((1, False), (100, True)):
        atoms = square.repeat(copies, 1)[None]
        assert (
            bool(distinct_axes(atoms, atoms.new_full((1, 4 * copies), 0.25 / copies))[1]) is enough
        )
