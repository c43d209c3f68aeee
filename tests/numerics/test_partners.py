"""Partners keep the weights of both distributions."""

import torch

from gp_distributions.numerics.sampling import random_partners


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_atoms_keep_their_shares_on_average() -> None:
    num = 20_000
    own, given = torch.tensor([0.7, 0.1, 0.2, 0.0]), torch.tensor([0.0, 0.3, 0.5, 0.2, 0.0])
    found = random_partners(own.expand(num, -1), given.expand(num, -1), generator())
    shares = torch.stack([(own * (found == k)).sum(-1) for k in range(5)], -1)
    # The standard error of a share is at most .5 / sqrt(num) = .0035.
    torch.testing.assert_close(shares.mean(0), given, atol=0.015, rtol=0)
    assert (shares[:, [0, 4]] == 0).all()  # padding


def test_equal_weights_become_a_permutation() -> None:
    equal = torch.ones(50, 7).double()
    found = random_partners(equal, 3 * equal, generator())
    torch.testing.assert_close(found.sort(-1).values, torch.arange(7).expand(50, -1))
    assert not torch.equal(found[0], found[1])


def test_the_mean_follows_the_other_distribution() -> None:
    """Even if both have few heavy atoms among many light ones."""
    weights = torch.rand(200, 20, generator=generator(), dtype=torch.float64) ** 6
    weights = weights / weights.sum(-1, keepdim=True)
    values = torch.randn(200, 20, generator=generator(), dtype=torch.float64)
    giver = torch.arange(200).roll(1)
    found = random_partners(weights, weights[giver], generator())
    received = (weights * values[giver].gather(-1, found)).sum(-1)
    expected = (weights * values).sum(-1)[giver]
    assert torch.corrcoef(torch.stack([received, expected]))[0, 1] > 0.7
