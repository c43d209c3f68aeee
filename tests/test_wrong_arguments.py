"""Wrong arguments that once ended in errors from inside, or did not end: findings of ``make fuzz``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    KernelRidgeClassifier,
    PointClouds,
    PoolSearch,
    ShapeOptimizer,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    align,
)

CLOUDS = PointClouds(np.random.default_rng(0).normal(size=(6, 4, 2)))
LABELS = list("ababab")


def model() -> DistributionGP:
    return DistributionGP(CLOUDS, np.arange(6.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SlicedWasserstein(2).squared(CLOUDS), r"PointClouds\. Pass clouds\.pack\(\)"),
        (lambda: SlicedWasserstein(2).embed([0.0]), "list"),
        (lambda: SlicedWasserstein(2).embed(torch.zeros(6)), "tensor of shape"),
        (lambda: SlicedWasserstein(2).squared(CLOUDS.pack().to_sparse()), "dense tensor"),
        (lambda: align(CLOUDS.points), "Expected PointClouds, got Tensor"),
        (lambda: PointClouds.from_list(SlicedWassersteinKernel(2)), "Expected a list"),
        (lambda: PointClouds.from_ragged([[0.0]], {"a": 1}), "Offsets"),
        (lambda: CLOUDS.resample(3, seed=torch.float32), "seed: expected an integer"),
        (
            lambda: ClassificationGP(torch.zeros(()), LABELS, SlicedWassersteinKernel(2)),
            "N x width",
        ),
        (lambda: DistributionGP(CLOUDS[:0], []), "at least one cloud"),
        (lambda: SparseDistributionGP(np.array(0.0), [0.0]), "Expected PointClouds"),
        (lambda: model().condition_on_observations(CLOUDS, [0.0]), "target for each of 6"),
        (lambda: model().condition_on_observations(CLOUDS, set()), "Expected numbers as targets"),
        (lambda: model().predict(CLOUDS, batch_size=torch.zeros(6)), "batch_size >= 1"),
        (
            lambda: KernelRidgeClassifier(
                CLOUDS, LABELS, SlicedWassersteinKernel(2), ridge=torch.ones(2)
            ),
            "ridge > 0",
        ),
        (lambda: ShapeOptimizer(PoolSearch(CLOUDS)).tell(float("inf"), 0.0), "index from 0 to 5"),
    ],
    ids=range(16),
)
def test_errors_of_the_package(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_no_clouds_have_features() -> None:
    assert len(SlicedWasserstein(2, num_slices=4).embed(torch.zeros(0, 12))) == 0
