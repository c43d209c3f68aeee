"""Estimators refuse packed rows, and do not mistake other arrays for them."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from gp_distributions import (
    CloudScaler,
    DistributionGP,
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    GramTransformer,
    PointClouds,
    SlicedWassersteinKernel,
    fit,
)

Array = NDArray[np.float64]
RNG = np.random.default_rng(0)
SMALL = {"num_slices": 5, "num_quantiles": 5}
BAGS = [RNG.normal(size=(n, 2)) for n in RNG.integers(2, 9, size=12)]
Y = np.array([bag[:, 0].mean() for bag in BAGS])
ROWS = PointClouds.from_list(BAGS).pack().numpy()
ESTIMATORS = [
    DistributionGPRegressor(options=SMALL, restarts=0),
    DistributionGPClassifier(options=SMALL, alpha_epsilon=0.01),
    EmbeddingTransformer(options=SMALL),
    GramTransformer(options=SMALL),
    CloudScaler(),
]


def packed(dim: int, sizes: list[int], dtype: type[np.floating]) -> Array:
    clouds = PointClouds.from_list(
        [RNG.normal(size=(n, dim)) for n in sizes], [RNG.random(n) for n in sizes]
    )
    weights = clouds.weights.numpy().astype(dtype)
    weights /= weights.sum(1, keepdims=True)
    rows = np.concatenate([clouds.points.numpy(), weights[..., None]], -1)
    return rows.reshape(len(sizes), -1)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_packed_rows_are_refused(estimator: BaseEstimator) -> None:
    message = rf"shape \(12, {ROWS.shape[1]}\) .*unpack\(X\[:, :{ROWS.shape[1]}\], dim=2\)"
    for given in (ROWS, ROWS.tolist(), pd.DataFrame(ROWS)):
        with pytest.raises(ValueError, match=message):
            clone(estimator).fit(given, Y > 0)
    covariates = np.concatenate([ROWS, RNG.normal(size=(12, 3))], 1)
    with pytest.raises(ValueError, match=rf"in its first {ROWS.shape[1]} columns"):
        clone(estimator).fit(covariates, Y > 0)
    clone(estimator).fit(PointClouds.unpack(ROWS, dim=2), Y > 0)
    clone(estimator).fit(PointClouds(covariates[:, None, :]), Y > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 2, 3, 10])
def test_rows_of_all_dimensions_and_precisions(dim: int, dtype: type[np.floating]) -> None:
    for sizes in ([2] * 8, [1, 2, 1], [200, 3, 50, 1]):
        rows = packed(dim, sizes, dtype)
        for given in (rows, np.concatenate([rows, np.ones((len(rows), 1))], 1)):
            with pytest.raises(
                ValueError, match=rf"weights of {max(sizes)} atoms of dimension {dim}"
            ):
                EmbeddingTransformer(options=SMALL).fit(given)


def test_rows_of_images_are_refused() -> None:
    rows = PointClouds.from_images(RNG.random((5, 4, 4))).pack().numpy()
    with pytest.raises(ValueError, match="weights of 16 atoms of dimension 2"):
        EmbeddingTransformer(options=SMALL).fit(rows)


OTHERS: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "normal": lambda rng, t, w: rng.normal(size=(t, w)),
    "uniform": lambda rng, t, w: rng.random((t, w)),
    "rounded": lambda rng, t, w: rng.random((t, w)).round(1),
    "integers": lambda rng, t, w: rng.integers(0, 4, (t, w)).astype(float),
    "booleans": lambda rng, t, w: rng.integers(0, 2, (t, w)).astype(float),
    "one-hot": lambda rng, t, w: np.eye(w)[rng.integers(0, w, t)],
    "unused categories": lambda rng, t, w: np.eye(4 * w)[2 * rng.integers(0, w, t) + 1],
    "compositions": lambda rng, t, w: rng.dirichlet(np.ones(w), t),
    "sparse compositions": lambda rng, t, w: rng.dirichlet(np.full(w, 0.05), t),
    "two compositions": lambda rng, t, w: np.hstack(
        [rng.dirichlet(np.ones(w), t), rng.dirichlet(np.ones(2), t)]
    ),
    "interleaved compositions": lambda rng, t, w: np.stack(
        [rng.dirichlet(np.ones(w), t), rng.dirichlet(np.ones(w), t)], -1
    ).reshape(t, -1),
    "complements": lambda rng, t, w: (lambda p: np.hstack([p, 1 - p]))(rng.random((t, w))),
    "constant": lambda rng, t, w: np.full((t, w), 1 / max(1, w // 2)),
    "rising": lambda rng, t, w: np.arange(t * w).reshape(t, w) / (t * w),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_arrays_are_points(kind: str) -> None:
    rng = np.random.default_rng(0)
    transformer = EmbeddingTransformer("mmd", options={"num_features": 2, "bandwidth": 1.0})
    for _ in range(20):
        t, w = int(rng.integers(8, 20)), int(rng.integers(1, 60))
        points = OTHERS[kind](rng, t, w)
        transformer.fit(points)
        assert transformer.n_features_in_ == points.shape[1]


def test_a_kernel_selects_columns_of_rows() -> None:
    width = ROWS.shape[1]
    kernel = ScaleKernel(
        SlicedWassersteinKernel(2, active_dims=range(width), **SMALL)
        * RBFKernel(active_dims=[width])
    ).double()
    X = np.concatenate([ROWS, RNG.normal(size=(12, 1))], 1)
    found = DistributionGPRegressor(kernel=kernel, restarts=0).fit(X, Y).predict(X)
    rows = torch.from_numpy(X)
    expected, _ = fit(DistributionGP(rows, Y, kernel), restarts=0).predict(rows)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-9)
