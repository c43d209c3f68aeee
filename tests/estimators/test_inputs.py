"""Estimators convert what scikit-learn would convert, and refuse what they would misread."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from gp_distributions import (
    CloudScaler,
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    Gaussians,
    GramTransformer,
    PointClouds,
)
from gp_distributions.warnings import PrecisionWarning

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5, 2))
Y = X[..., 0].mean(1)
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
    found = CloudScaler().fit_transform(gaussians.to(torch.float32))
    assert found.dtype == torch.float64
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


def test_sparse_input_is_refused() -> None:
    tensor = torch.from_numpy(X)
    estimators = (
        *(DistributionGPRegressor(), DistributionGPClassifier()),
        *(EmbeddingTransformer(), GramTransformer(), CloudScaler()),
    )
    for estimator in estimators:
        with pytest.raises(TypeError, match="Sparse data was passed for X, but dense"):
            estimator.fit(sparse.csr_array(X[:, 0]), Y > 0)
        with pytest.raises(TypeError, match=r"X: expected a dense array.* to_dense\(\)"):
            estimator.fit(tensor.to_sparse(), Y > 0)
        for bags in ([sparse.csr_array(bag) for bag in X], [bag.to_sparse() for bag in tensor]):
            with pytest.raises(TypeError, match=r"Bag 0: expected a dense array.* toarray\(\)"):
                estimator.fit(bags, Y > 0)
    with pytest.raises(TypeError, match="Sparse data was passed for y"):
        DistributionGPRegressor().fit(X, sparse.csr_array(Y[:, None]))


def test_masks_and_imaginary_parts_are_not_dropped() -> None:
    embedding = EmbeddingTransformer(options=SMALL)
    masked = np.ma.masked_array(X, mask=X > 1)
    for given in (masked, masked[:, 0], list(masked)):
        with pytest.raises(ValueError, match="whose mask would be lost"):
            embedding.fit(given)
    for given in (torch.from_numpy(X) + 0j, list(X + 0j), list(torch.from_numpy(X) + 0j)):
        with pytest.raises(ValueError, match="expected real numbers, got"):
            embedding.fit(given)


@pytest.mark.parametrize("kind", [DistributionGPRegressor, DistributionGPClassifier])
def test_targets_in_the_order_of_labelled_clouds(kind: type) -> None:
    table = pd.DataFrame({"bag": np.repeat(list("abcdefgh"), 5), "x": X[..., 0].ravel()})
    clouds = PointClouds.from_frame(table, bag="bag", columns="x")
    targets = pd.Series(Y > 0, index=list("abcdefgh"))
    kind(options=SMALL, restarts=0).fit(clouds, targets)
    with pytest.raises(ValueError, match="target 0 is named 'h' and cloud 0 'a'"):
        kind().fit(clouds, targets[::-1])
