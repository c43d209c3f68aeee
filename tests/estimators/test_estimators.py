"""The estimators follow scikit-learn's conventions, on arrays and on lists of clouds."""

import copy
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from gp_distributions import (
    DistributionGP,
    DistributionKernel,
    GaussianMixtures,
    Gaussians,
    LinearTransport,
    PointClouds,
    PrecomputedDistance,
    ReferenceMeasure,
    ScaledDistance,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    SparseDistributionGP,
    fit,
)
from gp_distributions.distances.mmd import MMD
from gp_distributions.estimators import (
    DistributionGPClassifier,
    DistributionGPRegressor,
    EmbeddingTransformer,
    GramTransformer,
    transformers,
)
from gp_distributions.models.sampling_noise import SamplingNoiseLikelihood

pytestmark = pytest.mark.usefixtures("short_fits")

SMALL = {"num_slices": 5, "num_quantiles": 5}
ALL = [
    DistributionGPRegressor(options=SMALL, restarts=0),
    DistributionGPRegressor(options=SMALL, restarts=0, num_inducing=10),
    DistributionGPClassifier(options=SMALL, alpha_epsilon=0.01, temperature=1.0),
    DistributionGPClassifier(options=SMALL, alpha_epsilon=0.01, num_inducing=10),
    EmbeddingTransformer(options=SMALL),
    GramTransformer(options=SMALL),
]


# A 2-D array holds clouds of one atom each, so no check has to be excluded. Sparse models differ in one
# line of fit.
@parametrize_with_checks([each for each in ALL if getattr(each, "num_inducing", None) is None])
def test_conventions(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


def bags(num: int = 24, seed: int = 0) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return bags of normal samples of different sizes, and the means of their first coordinate."""
    rng = np.random.default_rng(seed)
    found = [rng.normal(size=(rng.integers(5, 12), 2)) + rng.normal(size=2) for _ in range(num)]
    return found, np.array([bag[:, 0].mean() for bag in found])


def targets_of(estimator: BaseEstimator, y: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(y > np.median(y), "high", "low") if "Class" in str(estimator) else y


@pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)
def test_one_data_set_in_every_form(estimator: BaseEstimator) -> None:
    X, y = bags()
    labels = targets_of(estimator, y)
    clouds = PointClouds.from_list(X)
    objects = np.empty(len(X), dtype=object)
    objects[:] = X
    column = pd.Series(X, index=[f"patient {i}" for i in range(len(X))])
    forms = [X, clouds, list(clouds[i] for i in range(len(X))), objects, column]  # noqa: C400
    method = next(m for m in ("predict_proba", "predict", "transform") if hasattr(estimator, m))
    results = []
    for form in forms:
        fitted = clone(estimator).fit(form, labels)
        assert fitted.n_features_in_ == 2
        results.append(getattr(fitted, method)(form))
        for other in forms:
            again = getattr(fitted, method)(other)
            np.testing.assert_allclose(again, results[-1], atol=1e-9)
        np.testing.assert_allclose(results[-1], results[0], rtol=1e-3, atol=1e-6)


def test_clouds_of_one_size_and_of_one_atom() -> None:
    points = np.random.default_rng(0).normal(size=(7, 4, 3))
    transformer = EmbeddingTransformer(options=SMALL)
    expected = transformer.fit_transform(list(points))
    bags = np.empty(len(points), dtype=object)
    bags[:] = list(points)
    for form in (
        *(points, torch.from_numpy(points), points.astype(np.float32)),
        *(points.astype(object), bags, pd.Series(list(points.astype(object)))),
    ):
        np.testing.assert_allclose(transformer.fit_transform(form), expected, atol=1e-6)
    single = transformer.fit_transform(points[:, :1])
    np.testing.assert_array_equal(transformer.fit_transform(points[:, 0]), single)


def test_gaussians_and_mixtures() -> None:
    rng = np.random.default_rng(0)
    mean, factor = rng.normal(size=(8, 2)), rng.normal(size=(8, 2, 2))
    gaussians = Gaussians(mean, factor @ factor.transpose(0, 2, 1))
    gram = GramTransformer("mmd", options={"bandwidth": 1.0})
    K = gram.fit_transform(gaussians)
    np.testing.assert_allclose(gram.transform([gaussians[i] for i in range(8)]), K)
    mixtures = gaussians.as_mixtures()
    assert isinstance(mixtures, GaussianMixtures)
    np.testing.assert_allclose(gram.fit_transform(mixtures), K, atol=1e-12)
    with pytest.raises(ValueError, match="was fitted on mixtures, got gaussians"):
        gram.transform(gaussians)
    y = mean[:, 0]
    score = DistributionGPRegressor(restarts=0).fit(gaussians, y).score(gaussians, y)
    assert score > 0.9
    for estimator in (DistributionGPRegressor, DistributionGPClassifier):
        with pytest.raises(ValueError, match="Expected clouds of dimension 2, which the kernel"):
            estimator(kernel=SlicedWassersteinKernel(2)).fit(gaussians, y > 0)


def test_regressor_is_the_model() -> None:
    X, y = bags()
    clouds = PointClouds.from_list(X)
    model = fit(DistributionGP(clouds, y), restarts=1, seed=3)
    mean, std = model.predict(clouds)
    regressor = DistributionGPRegressor(seed=3).fit(X, y)
    assert regressor.model_.choice is not None
    noisy = DistributionGPRegressor(sampling_noise=True, restarts=0, options=SMALL).fit(X, y)
    assert isinstance(noisy.model_.likelihood, SamplingNoiseLikelihood)
    found, spread = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(found, mean.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(spread, std.numpy(), rtol=1e-2)
    both = np.stack([y, -2 * y + 5], 1)
    two = DistributionGPRegressor(restarts=0, options=SMALL).fit(X, both)
    assert two.model_.covar_module.base_kernel.lengthscale.shape == (2, 1, 1)
    mean, std = two.predict(X, return_std=True)
    assert mean.shape == std.shape == (24, 2)
    np.testing.assert_allclose(mean[:, 1], -2 * mean[:, 0] + 5, rtol=1e-2, atol=1e-2)


def test_sparse_regressor_is_the_sparse_model() -> None:
    X, y = bags(40)
    y = y + 0.1 * np.random.default_rng(0).normal(size=40)
    clouds = PointClouds.from_list(X)
    distance = ScaledDistance(SlicedWasserstein(2, **SMALL), learn=False, sizes=True)
    kernel = ScaleKernel(DistributionKernel(distance))
    model = SparseDistributionGP(clouds, y, kernel, num_inducing=20, seed=3)
    mean, std = fit(model, restarts=0, seed=3).predict(clouds)
    regressor = DistributionGPRegressor(num_inducing=20, options=SMALL, restarts=0, seed=3)
    found, spread = regressor.fit(X, y).predict(X, return_std=True)
    np.testing.assert_allclose(found, mean.numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(spread, std.numpy(), rtol=1e-6)
    grid = {"num_inducing": [None, 2, 15]}
    search = GridSearchCV(regressor, grid, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_["num_inducing"] != 2
    two = regressor.fit(X, np.stack([y, -2 * y + 5], 1)).predict(X)
    np.testing.assert_allclose(two[:, 1], -2 * two[:, 0] + 5, rtol=1e-2, atol=1e-2)


def test_pipelines_searches_and_cross_validation() -> None:
    X, y = bags(30)
    ridge = make_pipeline(GramTransformer(options=SMALL), KernelRidge(kernel="precomputed"))
    grid = {
        "gramtransformer__lengthscale": ["median", 1.0],
        "gramtransformer__distance": ["sliced_wasserstein", SlicedWasserstein(2, num_slices=7)],
        "gramtransformer__options": [None],
        "kernelridge__alpha": [1e-4, 10.0],
    }
    for data in (X, PointClouds.from_list(X), pd.Series(X, index=range(30, 60))):
        search = GridSearchCV(ridge, grid, cv=2, error_score="raise").fit(data, y)
        assert search.best_score_ > 0.9
        assert search.best_params_["kernelridge__alpha"] == 1e-4
    scores = cross_val_score(
        DistributionGPRegressor(options=SMALL, restarts=0), PointClouds.from_list(X), y, cv=3
    )
    assert (scores > 0.9).all()
    embedded = make_pipeline(EmbeddingTransformer(options=SMALL), StandardScaler(), SVC())
    labels = targets_of(DistributionGPClassifier(), y)
    assert cross_val_score(embedded, X, labels, cv=3).mean() > 0.7


def test_folds_split_rows_and_columns_of_the_gram_matrix() -> None:
    X, y = bags(20)
    kernel = DistributionKernel(SlicedWasserstein(2, **SMALL)).double()
    kernel.lengthscale = 1.3
    with torch.no_grad():
        K = kernel(PointClouds.from_list(X).pack()).to_dense().numpy()
    folds = KFold(4, shuffle=True, random_state=0)
    pipeline = make_pipeline(
        GramTransformer(options=SMALL, lengthscale=1.3),
        KernelRidge(kernel="precomputed", alpha=0.1),
    )
    found = cross_val_score(pipeline, X, y, cv=folds)
    expected = [
        KernelRidge(kernel="precomputed", alpha=0.1)
        .fit(K[np.ix_(a, a)], y[a])
        .score(K[np.ix_(b, a)], y[b])
        for a, b in folds.split(y)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_median_is_that_of_the_training_clouds() -> None:
    X, _ = bags(9)
    gram = GramTransformer(options=SMALL).fit(X)
    squared = SlicedWasserstein(2, **SMALL).squared(PointClouds.from_list(X).pack())
    median = squared[torch.ones(9, 9).triu(1) > 0].median().sqrt()
    assert gram.kernel_.lengthscale.item() == pytest.approx(median.item(), rel=1e-12)
    assert GramTransformer(options=SMALL).fit(X[:1]).kernel_.lengthscale.item() == 1.0
    # Shifted bags, which are centred, differ by rounding errors only.
    options = {**SMALL, "center": True}
    gram = GramTransformer(options=options).fit([X[0] + shift for shift in range(6)] + X[1:2])
    squared = SlicedWasserstein(2, **options).squared(PointClouds.from_list(X[:2]).pack())
    assert gram.kernel_.lengthscale.item() == pytest.approx(squared[0, 1].sqrt().item(), rel=1e-9)


def test_parameters_are_copied_and_never_changed() -> None:
    X, y = bags()
    distance = MMD(2)
    kernel = ScaleKernel(SlicedWassersteinKernel(2))
    before = copy.deepcopy([distance.state_dict(), kernel.state_dict()])
    gram = GramTransformer(distance).fit(X)
    DistributionGPRegressor(kernel=kernel, restarts=0).fit(X, y)
    for module, state in zip((distance, kernel), before, strict=True):
        for name, value in module.state_dict().items():
            torch.testing.assert_close(value, state[name], equal_nan=True, rtol=0, atol=0)
    assert gram.kernel_.distance.bandwidth is not None
    assert clone(gram).distance is not distance


@pytest.mark.parametrize("name", ["linear_transport", "sinkhorn", "fourier", "mmd"])
def test_named_distances(name: str) -> None:
    X, _ = bags()
    clouds = PointClouds.from_list(X)
    options = {
        "linear_transport": {"size": 5, "epsilon": 0.3, "seed": 1},
        "sinkhorn": {"size": 5, "method": "ball"},
        "fourier": {"num_frequencies": 10},
        "mmd": {"num_features": 10, "kernel": "laplace"},
    }[name]
    embedding = EmbeddingTransformer(name, options=options)
    features = embedding.fit_transform(X)
    np.testing.assert_array_equal(embedding.get_feature_names_out()[:1], ["embeddingtransformer0"])
    assert len(embedding.get_feature_names_out()) == features.shape[1]
    if name == "linear_transport":
        reference = ReferenceMeasure.from_data(clouds, size=5, seed=1)
        with torch.no_grad():
            expected = LinearTransport(reference, epsilon=0.3).embed(clouds.pack())
        np.testing.assert_allclose(features, expected.numpy(), atol=1e-12)


def test_wrong_inputs() -> None:
    X, _ = bags(6)
    gram = GramTransformer(options=SMALL).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but GramTransformer is expecting 2"):
        gram.transform([np.zeros((4, 3))])
    for given, message in (
        ([PointClouds(X[0]), X[1]], "one kind and dimension"),
        (PointClouds(X[0]), "one axis"),
        ([np.zeros(5), np.zeros(5)], r"shape \(5,\)\. Pass PointClouds\.from_list"),
        (PointClouds.from_list(X).pack(), r"T x n x d, got \(6, "),
        (np.full((6, 4, 2), "a"), "expected real numbers, got"),
        (pd.Series(list(np.full((6, 4, 2), "1", dtype=object))), "expected real numbers, got"),
    ):
        with pytest.raises(ValueError, match=message):
            gram.fit(given)
    with pytest.raises(ValueError, match="There is no distance 'wasserstein'"):
        GramTransformer("wasserstein").fit(X)
    with pytest.raises(ValueError, match="options only with the name"):
        GramTransformer(MMD(2), options=SMALL).fit(X)
    with pytest.raises(ValueError, match="in 2 dimensions, got one between clouds in 3"):
        GramTransformer(MMD(3)).fit(X)
    numbered = PrecomputedDistance(np.ones((6, 6)) - np.eye(6))
    for estimator in (
        *(kind(numbered) for kind in (GramTransformer, DistributionGPClassifier)),
        DistributionGPRegressor(kernel=ScaleKernel(DistributionKernel(numbered))),
    ):
        with pytest.raises(ValueError, match=r"between indices|Expected indices"):
            estimator.fit(np.arange(6.0)[:, None], np.arange(6) % 2)
    with pytest.raises(ValueError, match="lengthscale > 0"):
        GramTransformer(lengthscale="mean").fit(X)
    with pytest.raises(ValueError, match="no finite number of features"):
        EmbeddingTransformer("mmd").fit(X)


@pytest.mark.parametrize("name", ["sliced_wasserstein", "mmd"])
def test_features_in_single_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding changes distances by less than the bound, and all clouds choose the bandwidth."""
    options = SMALL if name == "sliced_wasserstein" else {"num_features": 20}
    X = [cloud + i for i, cloud in enumerate(np.random.default_rng(0).normal(size=(9, 12, 2)))]
    expected = EmbeddingTransformer(name, options=options).fit_transform(X)
    monkeypatch.setattr(transformers, "_PIECE", 4)
    double = EmbeddingTransformer(name, options=options).fit_transform(X)
    np.testing.assert_allclose(double, expected, rtol=1e-12, atol=1e-12)
    transformer = EmbeddingTransformer(name, options=options, dtype=np.float32)
    single = transformer.fit_transform(X)
    assert single.dtype == transformer.transform(X).dtype == np.float32
    differences = np.abs(cdist(single.astype(float), single.astype(float)) - cdist(double, double))
    norms = np.linalg.norm(double, axis=1)
    assert differences.max() > 0
    assert (differences <= 6e-8 * (norms[:, None] + norms) + 1e-12).all()
