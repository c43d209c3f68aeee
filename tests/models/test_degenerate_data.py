"""Data that tell a model nothing have finite predictions, whatever computes them."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from cases import random_clouds

from gp_distributions import (
    AggregateGP,
    ClassificationGP,
    DistributionGP,
    PointClouds,
    SparseAggregateGP,
    VariationalDistributionGP,
    fit,
)

X = PointClouds.from_list([points for points, _ in random_clouds(12, sizes=(4, 6))])
ONE = PointClouds(torch.ones(12, 1, 2).double())
Y = torch.linspace(-1, 1, 12).double()
CASES: dict[str, Callable[[], object]] = {
    "one atom": lambda: fit(DistributionGP(ONE, Y)).predict(ONE[:2]),
    "one atom, classes": lambda: fit(ClassificationGP(ONE, Y > 0)).predict_proba(ONE[:2]),
    "one target": lambda: fit(DistributionGP(X[:1], Y[:1])).predict(X[:2]),
    "sums of zero": lambda: fit(AggregateGP(X, 0 * Y, aggregate="sum")).predict(X[:2]),
    "constant aggregates": lambda: fit(SparseAggregateGP(X, 0 * Y + 5)).predict(X[:2]),
}


@pytest.mark.filterwarnings("ignore:All 12 training clouds coincide")
@pytest.mark.parametrize("name", CASES)
def test_predictions_are_finite(name: str) -> None:
    assert all(bool(part.isfinite().all()) for part in CASES[name]())  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore")  # of single precision
def test_sums_in_single_precision() -> None:
    model = AggregateGP(PointClouds(X.points.float()), Y.float(), aggregate="sum")
    assert fit(model, restarts=0).predict(X[:2])[0].dtype == torch.float32


def test_models_of_counts_are_copied_before_their_fit() -> None:
    model = VariationalDistributionGP(X, (3 * Y.exp()).round())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(map(torch.equal, copied.predict(X), model.predict(X)))
