"""Draws of atoms, pairs, partners and pivots, and medians of distances that are not rounding."""

import pytest
import torch
from torch import Tensor

from gp_distributions.numerics import sampling as pooled_atoms
from gp_distributions.numerics.sampling import (
    apart,
    choose_pivots,
    draw_atoms,
    draw_pairs,
    median_apart,
    median_distance,
    random_partners,
)


def test_every_cloud_counts_once_and_atoms_by_weight() -> None:
    points = torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]]).double()
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]]).double()
    drawn = draw_atoms(points, weights, 10_000)
    counts = torch.stack([(drawn == value).sum() for value in range(4)])
    # Standard deviations of frequencies are below 0.005.
    expected = torch.tensor([0.125, 0.375, 0.5, 0.0])
    torch.testing.assert_close(counts / 10_000, expected, rtol=0, atol=0.02)
    assert counts[3] == 0


def test_gaussian_components() -> None:
    mean = torch.tensor([[[1.0, 2.0]]]).double()
    covariance = torch.tensor([[[[2.0, 1.2], [1.2, 1.0]]]]).double()
    drawn = draw_atoms(mean, torch.ones(1, 1).double(), 20_000, covariance=covariance)
    torch.testing.assert_close(drawn.mean(0), mean[0, 0], rtol=0, atol=0.05)
    torch.testing.assert_close(drawn.T.cov(), covariance[0, 0], rtol=0, atol=0.1)
    without_spread = draw_atoms(mean, torch.ones(1, 1).double(), 5, covariance=0 * covariance)
    assert torch.equal(without_spread, mean[0].expand(5, 2))


def test_neither_padding_nor_order_nor_copies_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(7, 5, 2, generator=generator).double()
    mean[:, 1] = mean[:, 0]  # these two differ in their spread only
    spread = torch.rand(7, 5, 1, 1, generator=generator).double() * torch.eye(2).double()
    weights = torch.rand(7, 5, generator=generator).double()
    copies = [4, 0, 3, 0, 1, 2, 4, 1]  # the last one becomes padding
    shares = torch.tensor([0.25, 0.5, 1.0, 0.5, 1.0, 1.0, 0.75, 0.0]).double()
    for covariance in (None, spread):
        other = None if covariance is None else covariance[:, copies]
        torch.testing.assert_close(
            draw_atoms(mean[:, copies], weights[:, copies] * shares, 1000, covariance=other),
            draw_atoms(mean, weights, 1000, covariance=covariance),
        )


def test_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.randn(7, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.ones(7, 5).double()
    expected = draw_atoms(points, weights, 20)
    monkeypatch.setattr(pooled_atoms, "_PART", 11)
    assert torch.equal(draw_atoms(points, weights, 20), expected)


def test_median_distance() -> None:
    assert median_distance(torch.tensor([[0.0], [0.0], [0.0], [1.0], [3.0]]).double()) == 2.0
    assert median_distance(torch.ones(4, 2).double()) == 0.0


DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_errors_do_not_count(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    distances = torch.tensor([0.0, 80 * eps, 120 * eps, 0.5, 1.0], dtype=dtype)
    assert apart(distances).tolist() == [False, False, True, True, True]
    assert median_apart(distances) == 0.5


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_matrix_gives_the_lower_median_of_its_pairs(count: int) -> None:
    points = torch.randn(count, 1, generator=torch.Generator().manual_seed(count)).double()
    pairs = torch.pdist(points)
    expected = pairs.sort().values[(len(pairs) - 1) // 2]
    matrix = torch.zeros(count, count).double()
    matrix[tuple(torch.triu_indices(count, count, 1))] = pairs
    assert median_apart(matrix + matrix.T) == median_apart(pairs) == expected


def test_nan_if_all_coincide() -> None:
    assert bool(median_apart(torch.zeros(3, 3)).isnan())


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


def gram(num: int, *, seed: int = 0) -> Tensor:
    points = torch.randn(num, 2, generator=torch.Generator().manual_seed(seed)).double()
    return torch.exp(-torch.cdist(points, points).square() / 2)


def pivots(matrix: Tensor, count: int, *, tolerance: float = 1e-12, seed: int = 0) -> Tensor:
    return choose_pivots(
        lambda rows, columns: (matrix if rows is None else matrix[rows])[:, columns],
        matrix.diagonal().clone(),
        count,
        tolerance=tolerance,
        seed=seed,
    )


def left(matrix: Tensor, chosen: Tensor) -> float:
    """Trace of what the chosen inputs do not explain."""
    solved = torch.linalg.lstsq(matrix[chosen][:, chosen], matrix[chosen], driver="gelsd").solution
    return float((matrix - matrix[:, chosen] @ solved).trace())


def test_pivots_are_distinct_and_reproducible() -> None:
    matrix = gram(400)
    chosen = pivots(matrix, 150)
    assert len(chosen.unique()) == len(chosen)
    assert torch.equal(chosen, pivots(matrix, 150))
    assert not torch.equal(chosen, pivots(matrix, 150, seed=1))


def test_pivots_explain_more_than_random_inputs() -> None:
    matrix = gram(400)
    random = [
        torch.randperm(400, generator=torch.Generator().manual_seed(s))[:30] for s in range(5)
    ]
    least = min(left(matrix, chosen) for chosen in random)
    assert max(left(matrix, pivots(matrix, 30, seed=s)) for s in range(5)) < 0.8 * least


def test_pivots_stop_at_the_rank() -> None:
    factor = torch.randn(100, 7, generator=torch.Generator().manual_seed(0)).double()
    assert len(pivots(factor @ factor.T, 50, tolerance=1e-9)) == 7
    copies = gram(10).repeat_interleave(5, 0).repeat_interleave(5, 1)
    chosen = pivots(copies, 50)
    assert len((chosen // 5).unique()) == len(chosen) <= 10


def test_pivots_follow_the_distribution_of_one_at_a_time() -> None:
    # Three inputs: the first two coincide, the third has a fourth of their variance.
    matrix = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.25]]).double()
    first = torch.stack([pivots(matrix, 2, seed=seed)[0] for seed in range(1000)])
    # Binomial with p = 1 / 9: a deviation of 0.04 is four standard deviations.
    assert abs(float((first == 2).double().mean()) - 1 / 9) < 0.04


def test_rounding_errors_beside_a_tiny_lengthscale() -> None:
    # A distance of an input to itself that is not exactly zero looks large beside such a lengthscale.
    def covariances(rows: Tensor | None, columns: Tensor) -> Tensor:
        return (
            torch.zeros(20, len(columns)).double()
            if rows is None
            else torch.eye(len(rows)).double()
        )

    chosen = choose_pivots(covariances, torch.ones(20).double(), 15, tolerance=1e-8)
    assert len(chosen.unique()) == len(chosen) == 15
