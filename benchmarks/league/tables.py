"""Peers that read a table: summaries of each bag, and learners of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from botorch import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import gp_distributions as gd
from benchmarks.league.scores import Fold, Prediction, Probabilities, conformal, normal
from benchmarks.league.sets import Array

# Bags of more columns have no covariances among their summaries.
_COLUMNS = 30
Grid = Mapping[str, list[Any]]


def summary(bag: Array) -> Array:
    """Return means, deviations, quartiles, extremes, covariances and the log size of a bag."""
    quantiles = np.quantile(bag, [0, 0.25, 0.5, 0.75, 1], axis=0).ravel()
    parts = [bag.mean(0), bag.std(0), quantiles, [np.log(len(bag))]]
    if bag.shape[1] <= _COLUMNS:
        centred = bag - bag.mean(0)
        parts.append((centred.T @ centred / len(bag))[np.triu_indices(bag.shape[1], 1)])
    return np.concatenate(parts)


def summaries(fold: Fold) -> tuple[Array, Array]:
    """Return standardised summaries of training and test bags."""
    train, test = (np.stack([summary(bag) for bag in bags]) for bags in fold.bags())
    varying = train.std(0) > 1e-12
    train, test = train[:, varying], test[:, varying]
    return (train - train.mean(0)) / train.std(0), (test - train.mean(0)) / train.std(0)


def splitter(fold: Fold, folds: int = 3) -> Any:
    """Return folds of the training bags."""
    kind = StratifiedKFold if fold.labelled else KFold
    return kind(folds, shuffle=True, random_state=fold.seed)


def search(estimator: Any, grid: Grid, X: Array, fold: Fold, scoring: str = "") -> GridSearchCV:
    """Choose hyperparameters inside the training bags."""
    usual = "neg_log_loss" if fold.labelled else "neg_mean_squared_error"
    return GridSearchCV(estimator, grid, scoring=scoring or usual, cv=splitter(fold)).fit(X, fold.y)


def predicted(chosen: Any, X: Array, new: Array, fold: Fold) -> Prediction:
    """Return the predictions of a chosen estimator."""
    if fold.labelled:
        return Probabilities(chosen.predict_proba(new))
    held_out = cross_val_predict(clone(chosen), X, fold.y, cv=splitter(fold))
    return conformal(chosen.predict(new), fold.y - held_out)


def _on_summaries(made: Any, grid: Grid, fold: Fold) -> Prediction:
    X, new = summaries(fold)
    return predicted(search(made, grid, X, fold).best_estimator_, X, new, fold)


def boosting(fold: Fold) -> Prediction:
    """Gradient boosting of histograms on summaries."""
    kind = HistGradientBoostingClassifier if fold.labelled else HistGradientBoostingRegressor
    made = kind(max_iter=100, min_samples_leaf=5, random_state=fold.seed)
    return _on_summaries(made, {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [4, 16]}, fold)


def forest(fold: Fold) -> Prediction:
    """Random forests on summaries."""
    kind = RandomForestClassifier if fold.labelled else RandomForestRegressor
    made = kind(200, random_state=fold.seed)
    return _on_summaries(made, {"max_features": ["sqrt", 0.3], "min_samples_leaf": [1, 3]}, fold)


def machine(grams: Mapping[float, tuple[Array, Array]], fold: Fold, **options: Any) -> Prediction:
    """Choose among support vector machines, and calibrate their scores.

    Args:
        grams: For each width of a kernel, what machines read of training and test bags.
        fold: The bags.
        **options: Further options of a machine, by width where they are dictionaries.
    """
    unit = 1.0 if fold.labelled else float(fold.y.std())
    grid: Grid = {"C": [cost * unit for cost in (0.3, 1, 3, 10, 30, 100)]}
    tried = []
    for width, (X, new) in grams.items():
        more = {k: v[width] if isinstance(v, dict) else v for k, v in options.items()}
        made = SVC(**more) if fold.labelled else SVR(epsilon=0.1 * unit, **more)
        found = search(made, grid, X, fold, "accuracy" if fold.labelled else "")
        tried.append((found.best_score_, found.best_estimator_, X, new))
    _, chosen, X, new = max(tried, key=lambda one: one[0])
    if fold.labelled:
        sigmoid = CalibratedClassifierCV(chosen, cv=splitter(fold), ensemble=False)
        chosen = sigmoid.fit(X, fold.y)
    return predicted(chosen, X, new, fold)


def support_vectors(fold: Fold) -> Prediction:
    """A support vector machine with a Gaussian kernel of summaries."""
    pair = summaries(fold)
    gammas = {factor: factor / pair[0].shape[1] for factor in (0.03, 0.1, 0.3, 1.0)}
    return machine(dict.fromkeys(gammas, pair), fold, gamma=gammas)


def gaussian_process(fold: Fold) -> Prediction:
    """A Gaussian process with a Gaussian kernel of summaries."""
    X, new = summaries(fold)
    kernel = ConstantKernel() * RBF(X.shape[1] ** 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hyperparameters at bounds
        if fold.labelled:
            found = GaussianProcessClassifier(kernel, random_state=fold.seed).fit(X, fold.y)
            return Probabilities(found.predict_proba(new))
        noisy = kernel + WhiteKernel()
        found = GaussianProcessRegressor(noisy, normalize_y=True, random_state=fold.seed)
        return normal(*found.fit(X, fold.y).predict(new, return_std=True))


def principal(fold: Fold) -> Prediction:
    """BoTorch's GP, with a lengthscale for each, on up to 30 principal coordinates of aligned shapes."""
    assert fold.train.aligned is not None
    assert fold.test.aligned is not None
    number = min(30, len(fold.y) // 4)
    axes = make_pipeline(StandardScaler(), PCA(number), StandardScaler()).fit(fold.train.aligned)
    X, new = (torch.from_numpy(axes.transform(part.aligned)) for part in (fold.train, fold.test))
    if fold.labelled:
        kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=number)
        classifier = gd.fit(gd.ClassificationGP(X, fold.y, kernel), progress=False)
        return Probabilities(classifier.predict_proba(new).numpy())
    model = SingleTaskGP(X, torch.from_numpy(fold.y).unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    found = model.posterior(new, observation_noise=True)
    mean, variance = (values[:, 0].detach() for values in (found.mean, found.variance))
    return normal(mean.numpy(), variance.sqrt().numpy())
