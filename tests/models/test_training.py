"""Whether two models were trained on the same objects."""

from typing import Any

import pytest
import torch

from gp_distributions import DistributionGP, PointClouds, SparseDistributionGP
from gp_distributions.models.training import share_objects

POINTS = torch.randn(2, 12, 5, 2, generator=torch.Generator().manual_seed(0)).double()
ONE, OTHER = PointClouds(POINTS[0]), PointClouds(POINTS[1])
Y = torch.linspace(-1, 1, 12).double()


@pytest.mark.parametrize(
    ("first", "change", "same"),
    [
        (Y, 1e-9, True),  # a rounding error of the spread
        (Y, 1e-7, False),
        (1e6 + 1e-6 * Y, 1e-9, True),  # a rounding error of the largest
        (1e6 + Y, 1e-4, False),  # more than rounding errors of the spread and of the largest
    ],
)
def test_targets_up_to_rounding(first: torch.Tensor, change: float, same: bool) -> None:
    models = [
        DistributionGP(X, targets, outcome_transform=None)
        for X, targets in ((ONE, first), (OTHER, first + change))
    ]
    assert share_objects(*models) == same


class OnePiece:
    """Training data that a model does not keep in memory."""

    num_pieces = 1

    def piece(self, index: int) -> tuple[Any, ...]:
        return ONE, Y

    def sample(self, n: int, seed: int) -> tuple[Any, ...]:
        return ONE[:n], Y[:n]


def test_rows_that_are_unknown_may_be_the_same() -> None:
    sharded = SparseDistributionGP(OnePiece(), num_inducing=5, progress=False)
    exact = DistributionGP(OTHER, Y.flip(0))
    assert share_objects(sharded, exact)
    assert share_objects(exact, sharded)
