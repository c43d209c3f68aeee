"""Masked arrays and complex tensors, which lose their masks and imaginary parts in other arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    PointClouds,
    SlicedWassersteinKernel,
)
from gp_distributions.judging import nlpd
from gp_distributions.models import ConformalCorrection, KernelRidgeClassifier

CLOUDS = PointClouds(torch.arange(4.0, dtype=torch.float64)[:, None, None])
Y = [1.0, 2.0, 4.0, -999.0]
MASKED = np.ma.masked_equal(Y, -999.0)
COMPLEX = torch.tensor([1.0, 2.0, 4.0, 5.0j])
USES: dict[str, Callable[[Any], Any]] = {
    "targets": lambda y: DistributionGP(CLOUDS, y),
    "variances": lambda y: DistributionGP(CLOUDS, [1.0, 2.0, 4.0, 3.0], train_Yvar=y),
    "covariates": lambda y: MixedInputs(x=y),
    "columns": lambda y: MixedInputs(table={"x": y}),
    "calibration": lambda y: nlpd(y, Y, np.ones(4)),
    "conformal": lambda y: ConformalCorrection(y, Y, np.ones(4)),
}


@pytest.mark.parametrize("use", USES)
def test_masked_numbers(use: str) -> None:
    with pytest.raises(ValueError, match="a masked array, whose mask would be lost; leave out"):
        USES[use](MASKED)


@pytest.mark.parametrize("use", USES)
def test_complex_tensors(use: str) -> None:
    with pytest.raises(ValueError, match=r"expected real numbers, got (dtype )?torch\.complex"):
        USES[use](COMPLEX)


def test_masked_labels_and_targets_of_estimators() -> None:
    labels = np.ma.masked_equal([0, 1, 0, 9], 9)
    with pytest.raises(ValueError, match="Labels: expected an array, got a masked array"):
        ClassificationGP(CLOUDS, labels)
    with pytest.raises(ValueError, match="a masked array"):
        KernelRidgeClassifier(CLOUDS, labels, SlicedWassersteinKernel(1), ridge=0.1)
    with pytest.raises(ValueError, match="a masked array"):
        DistributionGPRegressor().fit(CLOUDS, MASKED)
