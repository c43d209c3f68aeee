"""Estimators convert what scikit-learn would convert, and refuse what they would misread."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from gp_distributions import (
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    Gaussians,
    GramTransformer,
    PointClouds,
    ShardedClouds,
)
from gp_distributions.warnings import PrecisionWarning

pytestmark = pytest.mark.usefixtures("short_fits")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5, 2))
Y = X[..., 0].mean(1)
SHARDS = ShardedClouds.from_pieces([lambda: (PointClouds(X), Y)])
SMALL = {"num_slices": 5, "num_quantiles": 5}


def single_clouds() -> PointClouds:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        return PointClouds(X.astype(np.float32))


def test_single_precision_is_converted_without_a_warning() -> None:
    clouds = single_clouds()
    expected = EmbeddingTransformer(options=SMALL).fit_transform(X)
    for given in (
        X.astype(np.float32),
        torch.from_numpy(X).float(),
        list(X.astype(np.float32)),
        clouds,
        [clouds[i] for i in range(8)],
        [PointClouds(X[0]), *(clouds[i] for i in range(1, 8))],
    ):
        features = EmbeddingTransformer(options=SMALL).fit_transform(given)
        assert features.dtype == np.float64
        np.testing.assert_allclose(features, expected, atol=1e-6)
    gaussians = Gaussians.from_clouds(PointClouds(X))
    found = EmbeddingTransformer(options=SMALL).fit_transform(gaussians.to(torch.float32))
    assert found.dtype == np.float64
    targets = torch.from_numpy(Y).float()
    regressor = DistributionGPRegressor(options=SMALL, restarts=0).fit(X, targets)
    assert regressor.predict(X).dtype == np.float64


def test_gradients_end_at_estimators() -> None:
    points = torch.from_numpy(X).requires_grad_()
    targets = torch.from_numpy(Y).requires_grad_()
    regressor = DistributionGPRegressor(options=SMALL, restarts=0)
    expected = regressor.fit(X, Y).predict(X)
    for given in (points, list(points), PointClouds(points), list(PointClouds(points))):
        np.testing.assert_array_equal(regressor.fit(given, targets).predict(given), expected)
    embedding = EmbeddingTransformer(options=SMALL)
    features = torch.from_numpy(embedding.fit_transform(X))
    options = {"max_iterations": 1, "tolerance": np.inf}
    for given in (features.requires_grad_(), features.detach().float().requires_grad_()):
        clouds = embedding.inverse_transform(given, **options)
        assert clouds.dtype == torch.float64
        assert not clouds.points.requires_grad


NUMBERS = [RNG.normal(size=int(n)) for n in (3, 5, 2, 4, 5, 3, 2, 4)]


LISTS = [bag.tolist() for bag in NUMBERS]


@pytest.mark.parametrize(
    "given",
    [
        LISTS,
        [torch.from_numpy(bag) for bag in NUMBERS],
        pd.Series(NUMBERS),
        np.array(NUMBERS, dtype=object),
        pd.DataFrame({"spectrum": LISTS}),
    ],
    ids=["lists", "tensors", "column", "objects", "frame"],
)
def test_bags_of_numbers(given: Any) -> None:
    expected = EmbeddingTransformer(options=SMALL).fit(PointClouds.from_list(NUMBERS))
    found = EmbeddingTransformer(options=SMALL).fit(given)
    assert found.n_features_in_ == 1
    np.testing.assert_array_equal(found.transform(given), expected.transform(NUMBERS))
    # Bags of equal lengths, such as those of a small test set, are bags of numbers, too.
    chosen = [1, 4]
    part = given.iloc[chosen] if hasattr(given, "iloc") else [given[i] for i in chosen]
    np.testing.assert_allclose(found.transform(part), expected.transform(NUMBERS)[chosen])


def test_columns_of_bags_of_equal_lengths_and_in_the_plane() -> None:
    equal = pd.Series([[1.0, 2.0], [3.0, 4.0]])
    assert EmbeddingTransformer().fit(equal).n_features_in_ == 1
    assert EmbeddingTransformer().fit(equal.tolist()).n_features_in_ == 2  # rows of a matrix
    plane = pd.Series([bag.tolist() for bag in X])
    for given in (plane, plane.to_frame()):
        np.testing.assert_array_equal(
            EmbeddingTransformer(options=SMALL).fit_transform(given),
            EmbeddingTransformer(options=SMALL).fit_transform(X),
        )


@pytest.mark.parametrize(
    "estimator",
    [
        *(DistributionGPRegressor(num_inducing=3), DistributionGPClassifier(num_inducing=3)),
        *(EmbeddingTransformer(), GramTransformer()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SHARDS, "in memory, .*, got ShardedClouds.*Sparse"),
        (sparse.csr_array(X[:, 0]), "Sparse data was passed for X, but dense"),
        (torch.from_numpy(X).to_sparse(), r"X: expected a dense array.* to_dense\(\)"),
        ([sparse.csr_array(bag) for bag in X], r"Bag 0: .* a dense array.* toarray\(\)"),
        (
            [torch.from_numpy(bag).to_sparse() for bag in X],
            r"Bag 0: .* a dense array.* toarray\(\)",
        ),
        (dict(enumerate(NUMBERS)), r"got dict\. Pass PointClouds\.from_list\(X\)"),
        (pd.Series([*LISTS[1:], ["x"]]), "Bag 7: expected real numbers, got 'x'"),
        (pd.Series([*LISTS[1:], []]), "Bag 7: expected a non-empty array"),
        ([*LISTS[1:], [[3.0, 4.0]]], r"Bag 0: expected a non-empty array of shape \(n, d\)"),
        ([*LISTS[1:], [[1.0, 2.0], [3.0]]], r"Bag 7: .*, got nested sequences of uneq"),
    ],
    ids=range(10),
)
def test_refused_inputs(estimator: Any, given: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        estimator.fit(given, Y > 0)


def test_refused_inputs_of_fitted_estimators_and_targets() -> None:
    with pytest.raises(TypeError, match=r"in memory, .*, got ShardedClouds"):
        EmbeddingTransformer(options=SMALL).fit(X).transform(SHARDS)
    with pytest.raises(TypeError, match="Sparse data was passed for y"):
        DistributionGPRegressor().fit(X, sparse.csr_array(Y[:, None]))
