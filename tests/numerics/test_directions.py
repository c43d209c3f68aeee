"""Directions on the sphere: positions and accuracy of integrals."""

import math

import numpy as np
import pytest
import scipy
import torch
from torch import Tensor

from gp_distributions.numerics.directions import random_directions, random_levels, sphere_directions

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
        random = torch.randn(number, dim, generator=generator, dtype=torch.float64)
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
