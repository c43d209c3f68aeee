"""Pairs of atoms are drawn as often as their weights say, also for extreme weights."""

import pytest
import torch

from gp_distributions.numerics.sampling import draw_pairs


@pytest.mark.parametrize("self_pairs", [False, True])
def test_drawn_pairs_have_the_frequencies_of_their_weights(self_pairs):
    weights = torch.tensor([[0.0, 0.4, 0.1, 0.0, 0.3, 0.2, 0.0]], dtype=torch.float64)
    count = 100_000
    first, second = draw_pairs(
        weights, count, self_pairs=self_pairs, generator=torch.Generator().manual_seed(0)
    )
    mass = weights.mT @ weights
    mass = mass if self_pairs else mass.fill_diagonal_(0)
    mass /= mass.sum()
    found = torch.zeros(7, 7, dtype=torch.float64)
    found.index_put_((first[0], second[0]), torch.ones(count, dtype=torch.float64), accumulate=True)
    assert found[mass == 0].sum() == 0
    # Five standard deviations of a count.
    assert ((found / count - mass).abs() <= 5 * (mass / count).sqrt()).all()


@pytest.mark.parametrize("tiny", [1e-20, 1e-320])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_extreme_weights(tiny, place):
    weights = torch.full((1, 3), tiny, dtype=torch.float64)
    weights[0, place] = 1.0
    first, second = draw_pairs(
        weights, 999, self_pairs=False, generator=torch.Generator().manual_seed(0)
    )
    assert ((first == place) ^ (second == place)).all()
