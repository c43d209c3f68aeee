"""Copies of candidates that share distances, and the kernels that candidates become."""

from typing import Any

import pytest

from gp_distributions import MMD, DistributionKernel, ScaledDistance, SlicedWasserstein
from gp_distributions.distances import Distance
from gp_distributions.kernels.copies import copied, distances_of


def sliced() -> SlicedWasserstein:
    return SlicedWasserstein(2, num_slices=4, num_quantiles=4)


def learned() -> MMD:
    distance = MMD(2, bandwidth=1.0)
    distance.raw_bandwidth.requires_grad_()
    return distance


@pytest.mark.parametrize(
    ("distance", "together"),
    [
        (sliced(), True),
        (MMD(2), False),  # its bandwidth is still to be set
        (MMD(2, bandwidth=1.0, num_features=4), True),
        (learned(), False),
        (ScaledDistance(sliced()), False),
    ],
)
def test_only_distances_that_do_not_change_are_shared(distance: Distance, together: bool) -> None:
    given = {p: DistributionKernel(distance, p) for p in ("matern52", "exponential")}
    first, second = (distances_of(kernel) for kernel in copied(given).values())
    assert (first[0] is second[0]) is together
    assert distance not in (first[0], second[0])
    assert first[-1] is second[-1] or isinstance(distance, MMD)


def test_copies_keep_what_is_shared_within_one_candidate() -> None:
    distance = MMD(2)
    kernel: Any = DistributionKernel(distance) + DistributionKernel(distance, "exponential")
    (copy,) = copied({"sum": kernel}).values()
    first, second = (part.distance for part in copy.kernels)
    assert first is second
    assert first is not distance
