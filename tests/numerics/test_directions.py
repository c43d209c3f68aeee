"""Directions and their quadratures; principal axes against NumPy, and Bingham's test."""

import math

import numpy as np
import pytest
import scipy
import torch
from cases import randn
from torch import Tensor

from gp_distributions.numerics.directions import (
    distinct_axes,
    random_directions,
    random_levels,
    sphere_directions,
    uniform_axes_p_value,
)

# (dim, number): one and two dimensions, least energy with fewer and more than dim, bases.
CASES = [(1, 7), (2, 1), (2, 9), (3, 1), (3, 2), (3, 40), (5, 40), (10, 40), (3, 600), (7, 700)]


def energy(directions: Tensor) -> float:
    """Riesz energy on the projective sphere by its definition."""
    total = 0.0
    for i in range(len(directions)):
        for sign in (1, -1):
            gaps = directions[i] + sign * directions[i + 1 :]
            total += float((1 / gaps.norm(dim=-1)).sum())
    return total


def orthonormal(dim: int, blocks: int, seed: int) -> Tensor:
    normal = np.random.default_rng(seed).standard_normal((blocks, dim, dim))
    return torch.from_numpy(np.linalg.qr(normal)[0]).flatten(0, 1)


@pytest.mark.parametrize(("dim", "number"), CASES)
def test_unit_vectors_in_double_precision(dim: int, number: int) -> None:
    directions = sphere_directions(dim, number)
    assert directions.shape == (1 if dim == 1 else number, dim)
    assert directions.dtype == torch.float64
    torch.testing.assert_close(
        directions.norm(dim=-1), torch.ones(len(directions)).double(), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("number", [1, 2, 9, 100])
def test_two_dimensions_are_equispaced_projectively(number: int) -> None:
    directions = sphere_directions(2, number)
    angles = torch.atan2(directions[:, 1], directions[:, 0]).remainder(math.pi).sort().values
    gaps = torch.diff(angles, append=angles[:1] + math.pi)
    torch.testing.assert_close(gaps, torch.full_like(gaps, math.pi / number), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("dim", "number"), [(3, 40), (5, 40), (3, 600)])
def test_seeds(dim: int, number: int) -> None:
    assert torch.equal(sphere_directions(dim, number), sphere_directions(dim, number, seed=0))
    one, other = (sphere_directions(dim, number, seed=seed) for seed in (1, 2))
    # Different seeds give different directions.
    assert float((one - other).abs().max()) > 0.1


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dim", [3, 5, 10])
def test_energy_is_less_than_that_of_bases_and_of_random_directions(dim: int, seed: int) -> None:
    number = 4 * dim
    found = energy(sphere_directions(dim, number, seed=seed))
    generator = torch.Generator().manual_seed(0)
    for trial in range(10):
        random = randn(number, dim, seed=generator)
        assert found < energy(orthonormal(dim, 4, trial))
        assert found < energy(torch.nn.functional.normalize(random, dim=-1))


@pytest.mark.parametrize("number", [513, 600])
@pytest.mark.parametrize("dim", [3, 10])
def test_many_directions_are_orthonormal_bases(dim: int, number: int) -> None:
    directions = sphere_directions(dim, number)
    whole = number // dim * dim
    bases = directions[:whole].unflatten(0, (-1, dim))
    expected = torch.eye(dim, dtype=torch.float64).expand_as(bases)
    torch.testing.assert_close(bases @ bases.mT, expected, rtol=0, atol=1e-13)
    rest = directions[whole:]
    torch.testing.assert_close(
        rest @ rest.T, torch.eye(len(rest), dtype=torch.float64), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("dim", [3, 5, 8, 10])
def test_polynomials_of_degree_two_are_integrated(dim: int) -> None:
    """The second moments are those of the sphere, I / d.

    For L random directions, the root mean square Frobenius norm of the error is sqrt((1 - 1/d) / L).
    The test asks for a tenth of that; a twentieth or less was measured.
    """
    number = 100
    directions = sphere_directions(dim, number)
    error = directions.T @ directions / number - torch.eye(dim, dtype=torch.float64) / dim
    assert float(error.norm()) <= 0.1 * math.sqrt((1 - 1 / dim) / number)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_what_is_returned_may_be_changed(dim: int) -> None:
    """The cached optimum must not change either."""
    expected = sphere_directions(dim, 20).clone()
    sphere_directions(dim, 20).zero_()
    assert torch.equal(sphere_directions(dim, 20), expected)


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_random_ones_are_uniform_draws(dim: int) -> None:
    directions = random_directions(dim, 2000, seed=1)
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(len(directions)).double())
    assert len(directions) == (1 if dim == 1 else 2000)
    assert torch.equal(directions, random_directions(dim, 2000, seed=1))
    if dim > 1:
        assert not torch.equal(directions, random_directions(dim, 2000, seed=2))
        # The covariance of a uniform direction is the identity over dim, its mean is zero.
        room = 5 / math.sqrt(2000)
        assert float(directions.mean(0).abs().max()) < room
        second = directions.T @ directions / 2000 - torch.eye(dim).double() / dim
        assert float(second.abs().max()) < room


def test_random_levels_are_uniform_and_those_of_their_seed() -> None:
    levels = random_levels(50, 200, seed=4)
    assert torch.equal(levels, random_levels(50, 200, seed=4))
    assert not torch.equal(levels, random_levels(50, 200, seed=5))
    assert torch.equal(levels[:, :7], random_levels(50, 7, seed=4))
    # At the level 1e-6, the Kolmogorov-Smirnov statistic of n draws is at most sqrt(log(2e6) / 2n).
    bound = math.sqrt(math.log(2e6) / (2 * levels.numel()))
    assert scipy.stats.kstest(levels.flatten(), "uniform").statistic < bound


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
