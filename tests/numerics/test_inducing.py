"""Pivots: distinct, reproducible, as good as one at a time, and none where nothing is left."""

import torch
from torch import Tensor

from gp_distributions.numerics.inducing import choose_pivots


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
