"""Clouds of pairs: their atoms and weights, invariance to pose, sampling, gradients and errors."""

import itertools
import math

import numpy as np
import pytest
import torch

from gp_distributions import PointClouds
from gp_distributions.numerics.sampling import draw_pairs


def ragged(sizes=(3, 7, 2, 5), dim=4, seed=0):
    rng = np.random.default_rng(seed)
    bags = [rng.normal(size=(n, dim)) for n in sizes]
    return bags, [rng.random(n) + 0.05 for n in sizes]


def by_loop(bag, weights, space, self_pairs=False):
    """The pairs of one bag with normalised weights, each a tuple, sorted."""
    found = []
    for i, j in itertools.product(range(len(bag)), repeat=2):
        if i != j or self_pairs:  # both orders: the weights of equal pairs add up
            marks = zip(bag[i][space:], bag[j][space:], strict=True)
            means, gaps = zip(*[((a + b) / 2, abs(a - b)) for a, b in marks], strict=True)
            distance = math.dist(bag[i][:space], bag[j][:space])
            found.append((min(i, j), max(i, j), weights[i] * weights[j], distance, *means, *gaps))
    merged = {}
    for i, j, mass, *features in found:
        merged[i, j] = (merged.get((i, j), (0.0,))[0] + mass, *features)
    table = np.array(sorted(merged.values(), key=lambda row: row[1:]))
    table[:, 0] /= table[:, 0].sum()
    return table


def as_table(cloud):
    present = cloud.weights > 0
    rows = torch.cat([cloud.weights[present].unsqueeze(-1), cloud.points[present]], -1).tolist()
    return np.array(sorted(rows, key=lambda row: row[1:]))


@pytest.mark.parametrize("self_pairs", [False, True])
def test_pairs_are_those_of_a_loop(self_pairs):
    bags, weights = ragged()
    made = PointClouds.from_list(bags, weights).pairs(2, self_pairs=self_pairs)
    assert made.dim == 5
    for cloud, bag, weight in zip(range(4), bags, weights, strict=True):
        expected = by_loop(bag, weight, 2, self_pairs)
        np.testing.assert_allclose(as_table(made[cloud]), expected, rtol=0, atol=1e-15)


def test_many_clouds_have_the_pairs_of_few():
    sizes = np.random.default_rng(2).integers(2, 30, 1000)
    clouds = PointClouds.from_list(*ragged(sizes))
    many = clouds.pairs(3)
    for start in (0, 500, 990):
        few = clouds[start : start + 10].pairs(3)
        width = few.weights.shape[-1]
        chosen = many[start : start + 10]
        assert torch.equal(chosen.points[:, :width], few.points)
        # Sums over more padding are rounded differently.
        torch.testing.assert_close(chosen.weights[:, :width], few.weights, rtol=1e-14, atol=0)
        assert not chosen.weights[:, width:].any()


def test_batches_padding_and_labels():
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(3, 2, 5, 2)), rng.random((3, 2, 5)) + 0.1
    weights[1, 0, [1, 4]] = 0.0  # padding between atoms
    clouds = PointClouds(points, weights)
    made = clouds.pairs()
    assert (made.batch_shape, made.dim) == ((3, 2), 1)
    assert made.sizes.tolist() == [[10, 10], [3, 10], [10, 10]]
    alone = PointClouds(points[1, 0][weights[1, 0] > 0], weights[1, 0][weights[1, 0] > 0])
    inside = PointClouds(made.points[1, 0], made.weights[1, 0])
    np.testing.assert_array_equal(as_table(inside), as_table(alone.pairs()))
    assert as_table(inside).shape == (3, 2)
    named = PointClouds.from_list({"a": [[0.0], [1.0]], "b": [[2.0], [5.0], [5.0]]}).pairs()
    assert named.labels.tolist() == ["a", "b"]
    assert named.points[1].flatten().tolist() == [3, 3, 0]


def test_features_of_molecules():
    bags, weights = ragged((4, 3))
    clouds = PointClouds.from_list(bags, weights)

    def features(a, b):
        assert a.shape == b.shape
        assert a.shape[1:] == (4,)
        r = (a[:, :3] - b[:, :3]).norm(dim=-1)
        return torch.stack([r.log(), (a[:, 3] - b[:, 3]).abs()], -1)

    made, plain = clouds.pairs(features=features), clouds.pairs(3)
    expected = torch.stack([plain.points[0, :, 0].log(), plain.points[0, :, 2]], -1)
    torch.testing.assert_close(made.points[0], expected)
    assert made.points[1, 3:].eq(0).all()  # padding, although log(0) is infinite
    numbers = clouds.pairs(features=lambda a, b: (a * b).sum(-1))
    assert numbers.dim == 1


def test_gradients_agree_with_finite_differences():
    bags, weights = ragged((3, 5))
    clouds = PointClouds.from_list(bags, weights)
    points, masses = clouds.points.requires_grad_(), clouds.weights.clone()
    present = masses > 0

    def pairs(points, positive):
        made = PointClouds(points, torch.zeros_like(masses).masked_scatter(present, positive))
        return made.pairs(3, self_pairs=True).weights, made.pairs(3).points

    positive = masses[present].requires_grad_()
    assert torch.autograd.gradcheck(pairs, (points, positive))


def test_gradients_are_finite_at_coincident_atoms():
    points = torch.tensor([[[1.0, 2.0, 3.0]] * 3 + [[0.0, 0.0, 1.0]]], dtype=torch.float64)
    points.requires_grad_()
    weights = torch.full((1, 4), 0.25, dtype=torch.float64, requires_grad=True)
    made = PointClouds(points, weights).pairs(2, self_pairs=True)
    (made.weights.unsqueeze(-1) * made.points).sum().backward()
    for gradient in (points.grad, weights.grad):
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0
    assert (weights.grad * weights).sum().abs() < 1e-12


def test_drawn_pairs_are_seeded_and_have_equal_weights():
    bags, weights = ragged((3, 40, 2))
    clouds = PointClouds.from_list(bags, weights)
    made, again, other = (clouds.pairs(2, num_pairs=25, seed=seed) for seed in (0, 0, 1))
    assert made == again
    assert made != other
    assert made.sizes.tolist() == [25] * 3
    assert made.weights.unique().tolist() == [1 / 25]
    every = clouds.pairs(2)
    for cloud in range(3):
        known = {tuple(row) for row in every[cloud].points.tolist()}
        assert {tuple(row) for row in made[cloud].points.tolist()} <= known
    generator = torch.Generator().manual_seed(0)
    assert clouds.pairs(2, num_pairs=25, seed=generator) == made
    wider = PointClouds.unpack(clouds.pack(60), 4)
    assert wider.pairs(2, num_pairs=25) == made


def test_drawn_pairs_spread_evenly():
    weights = torch.full((2, 40), 1 / 40, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    first, second = draw_pairs(weights, 400, self_pairs=True, generator=generator)
    for cloud in range(2):
        assert first[cloud].bincount(minlength=40).tolist() == [10] * 40
        assert (second[cloud].bincount(minlength=40) - 10).abs().max() <= 2
        assert len(set(zip(first[cloud].tolist(), second[cloud].tolist(), strict=True))) > 390


def test_errors():
    bags, _ = ragged((3, 1, 2))
    clouds = PointClouds.from_list(dict(zip("abc", bags, strict=True)))
    with pytest.raises(ValueError, match=r"Bag 1 \(label b\): expected at least two atoms.*got 1"):
        clouds.pairs()
    assert clouds.pairs(self_pairs=True).sizes.tolist() == [6, 1, 3]
    for options, message in (
        ({"space": 5}, r"either features or space <= d = 4, got space = 5"),
        ({"features": torch.sub}, "do not depend on the order"),
        ({"features": lambda a, b: (a * b).sum()}, r"of shape \(2, D\) for 2 pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            clouds[[0, 2]].pairs(**options)
    with pytest.raises(ValueError, match=r"Bag 1: expected finite features.*got -inf in pair 0"):
        PointClouds([[[0.0], [1.0]], [[2.0], [2.0]]]).pairs(
            features=lambda a, b: (a - b).abs().log()
        )
