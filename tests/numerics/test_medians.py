"""Medians of distances: rounding errors are not distances, and each pair counts once."""

import pytest
import torch

from gp_distributions.numerics.sampling import apart, median_apart

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
