"""Leave-one-out scores of models that are already made, and their weights."""

from typing import Any

import pytest
import torch

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
)
from gp_distributions.numerics.stacking import stacking_weights
from gp_distributions.scoring import leave_one_out_weights, left_out

POINTS = torch.randn(20, 10, 2, generator=torch.Generator().manual_seed(0)).double()
X, Y = PointClouds(POINTS), POINTS.mean((-2, -1))
LABELS = ["high" if y > 0 else "low" for y in Y.tolist()]
KERNELS = (SlicedWassersteinKernel(2), MMDKernel(2, bandwidth=0.2), MMDKernel(2, bandwidth=2.0))


def test_densities_of_regression_are_normal() -> None:
    for model in (DistributionGP(X, Y), SparseDistributionGP(X, Y)):
        mean, std = model.leave_one_out()
        expected = torch.distributions.Normal(mean, std).log_prob(Y)
        torch.testing.assert_close(left_out(model, Y).log_density, expected)


@pytest.mark.parametrize("kind", [ClassificationGP, SparseClassificationGP])
def test_densities_of_classifiers_are_log_probabilities(kind: Any) -> None:
    model = kind(X, LABELS)
    found = left_out(model, LABELS)
    torch.testing.assert_close(found.log_density, model.leave_one_out())
    assert found.scores()["accuracy"] > 0.5


def test_weights_are_those_of_the_densities() -> None:
    models = [DistributionGP(X, Y, kernel) for kernel in KERNELS]
    densities = torch.stack([left_out(model, Y).log_density for model in models], -1)
    weights = leave_one_out_weights(models, Y)
    torch.testing.assert_close(weights, stacking_weights(densities, prior=0.02))
    plain = leave_one_out_weights(models, Y, prior=0)
    torch.testing.assert_close(plain, stacking_weights(densities))
    assert weights.argmax() != 1


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="got Linear"):
        left_out(torch.nn.Linear(2, 2), Y)
