"""Leave-one-out scores of models that are already made, and their weights."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MMDKernel,
    PointClouds,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
)
from gp_distributions.metrics import leave_one_out_weights, left_out
from gp_distributions.numerics.predictions import stacking_weights

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


def test_targets_of_any_kind() -> None:
    targets = 1e-3 * Y + 1e6  # whose digits single precision would lose
    model = DistributionGP(X, targets)
    expected = left_out(model, targets).log_density
    for given in (targets.tolist(), pd.Series(targets.numpy()[::-1]).iloc[::-1], targets[:, None]):
        assert torch.equal(left_out(model, given).log_density, expected)
    both = torch.stack([Y, Y.square()], dim=-1)
    model = DistributionGP(X, both)
    expected = left_out(model, both).log_density
    assert torch.equal(left_out(model, pd.DataFrame(both.numpy())).log_density, expected)
    weights = leave_one_out_weights([model, model], pd.DataFrame(both.numpy()))
    torch.testing.assert_close(weights, torch.full((2,), 0.5, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
@pytest.mark.parametrize("kind", [DistributionGP, SparseDistributionGP])
def test_models_and_targets_in_single_precision(kind: Any) -> None:
    targets = Y + 3
    single = kind(X.to(torch.float32), targets)
    found = left_out(single, targets)
    assert found.targets.dtype == torch.float64
    assert torch.equal(found.targets.flatten(), targets)
    double = left_out(kind(X, targets), targets.float())
    torch.testing.assert_close(double.targets.flatten(), targets.float().double())


BOTH = torch.stack([Y, Y.square()], dim=-1)
NAMED = pd.Series(Y.numpy(), index=[f"p{i}" for i in range(20)])
OTHER = [*LABELS[:5], "low" if LABELS[5] == "high" else "high", *LABELS[6:]]
REGRESSION, CLASSES = (
    (DistributionGP, SparseDistributionGP),
    (ClassificationGP, SparseClassificationGP),
)
REFUSED: list[tuple[tuple[Any, ...], Any, Any, str]] = [
    ((DistributionGP,), BOTH, BOTH.T, r"one target for each of \(20,\) clouds"),
    ((DistributionGP,), BOTH, Y, r"Expected 2 targets for each cloud, got y of shape \(20,\)"),
    ((SharedKernelGP,), BOTH, BOTH.flip(0), "cloud 0 is"),
    (REGRESSION, Y, Y.index_fill(0, torch.tensor(3), torch.nan), "finite .* that of cloud 3"),
    (REGRESSION, Y, Y.flip(0), r"order and units, .* cloud 0 is"),
    (REGRESSION, Y, 1000 * Y, r"order and units, .* cloud 0 is .*make all models from them"),
    (REGRESSION, Y, NAMED[::-1], r"cloud 0 \(named 'p19'\) is"),
    (REGRESSION, Y, Y + (torch.arange(20) == 7), f"cloud 7 is .*{Y[7].item() + 1}.* in y and"),
    (CLASSES, LABELS, OTHER, f"labels .*cloud 5 is {OTHER[5]} in y and {LABELS[5]}"),
    (CLASSES, LABELS, ["x", "y"] * 10, r"classes \['high', 'low'\] .*, got \['x', 'y'\]"),
]


@pytest.mark.parametrize(("kinds", "known", "given", "message"), REFUSED)
def test_other_targets_and_labels_are_refused(
    kinds: Any, known: Any, given: Any, message: str
) -> None:
    for kind in kinds:
        model = kind(X, known)
        left_out(model, known)
        with pytest.raises(ValueError, match=message):
            left_out(model, given)


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="got Linear"):
        left_out(torch.nn.Linear(2, 2), Y)
    with pytest.raises(ValueError, match="at least one model"):
        leave_one_out_weights([], Y)
    with pytest.raises(ValueError, match="make all models from them"):
        leave_one_out_weights([DistributionGP(X, Y), DistributionGP(X, 1000 * Y)], Y)


@pytest.mark.parametrize("kind", CLASSES)
def test_labels_may_be_truth_values(kind: Any) -> None:
    low = np.array(LABELS) == "low"
    found, expected = left_out(kind(X, low), pd.Series(low)), left_out(kind(X, LABELS), LABELS)
    assert torch.equal(found.targets, expected.targets)
