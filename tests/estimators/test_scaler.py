"""The scaler follows scikit-learn's conventions and keeps folds apart."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gp_distributions import CloudScaler, EmbeddingTransformer, Gaussians, PointClouds

RNG = np.random.default_rng(0)
BAGS = [1e3 * RNG.normal(size=(n, 2)) * [1, 1e-6] + 5 for n in RNG.integers(3, 9, size=20)]
Y = np.array([bag[:, 1].std() for bag in BAGS])


@parametrize_with_checks([CloudScaler()])
def test_conventions(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


def test_is_that_of_the_containers() -> None:
    clouds = PointClouds.from_list(BAGS)
    expected = clouds[12:].normalize(like=clouds[:12])
    assert CloudScaler().fit(BAGS[:12]).transform(BAGS[12:]).sizes.tolist() == [
        len(bag) for bag in BAGS[12:]
    ]
    for X in (BAGS, clouds, [clouds[i] for i in range(len(BAGS))]):
        found = CloudScaler().fit(X[:12]).transform(X[12:])
        width = found.points.shape[-2]
        np.testing.assert_allclose(found.points, expected.points[:, :width], rtol=1e-12)
    gaussians = Gaussians.from_clouds(clouds)
    found = CloudScaler().fit(gaussians[:12]).transform(gaussians[12:])
    assert found == gaussians[12:].normalize(like=gaussians[:12])


def test_of_points_is_the_standard_scaler() -> None:
    points = RNG.normal(size=(10, 3))
    np.testing.assert_allclose(
        CloudScaler().fit_transform(points), StandardScaler().fit_transform(points)
    )


def test_folds_do_not_see_each_other() -> None:
    pipeline = make_pipeline(
        CloudScaler(),
        EmbeddingTransformer(options={"num_slices": 5, "num_quantiles": 5}),
        KernelRidge(alpha=0.1),
    )
    folds = list(KFold(4).split(BAGS))
    found = cross_val_predict(pipeline, BAGS, Y, cv=folds)
    for train, test in folds:
        by_hand = pipeline.fit([BAGS[i] for i in train], Y[train])
        np.testing.assert_allclose(found[test], by_hand.predict([BAGS[i] for i in test]))


def test_a_constant_coordinate_has_no_scale() -> None:
    with pytest.raises(ValueError, match="Coordinate 1: expected several values"):
        CloudScaler().fit([bag * [1, 0] for bag in BAGS])
