"""The package: a model without a kernel, and the stacked comparison of the default kernels."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import ScaleKernel

import gp_distributions as gd
from benchmarks.league.scores import Fold, Prediction, Probabilities, normal
from gp_distributions.kernels import aggregate_kernel, default_kernels


def _predicted(model: Any, X: Any, *, labelled: bool) -> Prediction:
    if labelled:
        return Probabilities(model.predict_proba(X).numpy())
    mean, std = model.predict(X)
    return normal(mean.numpy(), std.numpy())


def _fitted(fold: Fold, X: Any, new: Any, kernel: Any = None) -> Prediction:
    make: Any = gd.ClassificationGP if fold.labelled else gd.DistributionGP
    model = gd.fit(make(X, fold.train.y, kernel), progress=False)
    return _predicted(model, new, labelled=fold.labelled)


def default(fold: Fold) -> Prediction:
    """The model that has no kernel before ``fit``."""
    return _fitted(fold, fold.train.clouds, fold.test.clouds)


def comparison(fold: Fold) -> Prediction:
    """The stack of the default kernels, in regression with the scales that the default has learned."""
    X, y = fold.train.clouds, fold.train.y
    scales = () if fold.labelled else gd.fit(gd.DistributionGP(X, y), progress=False).choice.scales
    kernels = default_kernels(X, scales=scales)
    found = gd.compare(kernels, X, y, classification=fold.labelled, progress=False)
    return _predicted(found.model(), fold.test.clouds, labelled=fold.labelled)


def linear(fold: Fold) -> Prediction:
    """A kernel linear on mean embeddings: the default MMD with that profile."""
    X = fold.train.clouds
    distance = default_kernels(X)["mmd matern52"].base_kernel.distance
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    kernel = gd.DistributionKernel(distance, "linear", origin=X[order[:50]])
    return _fitted(fold, X, fold.test.clouds, ScaleKernel(kernel))


def aggregate(fold: Fold) -> Prediction:
    """Latent functions that are means over atoms of a function of them."""
    return _fitted(fold, fold.train.clouds, fold.test.clouds, aggregate_kernel(fold.train.clouds))


def sums(fold: Fold) -> Prediction:
    """Sums over atoms of a function of their surroundings."""
    assert fold.train.atoms is not None
    assert fold.test.atoms is not None
    X, new = map(gd.measures.surroundings, (fold.train.atoms, fold.test.atoms))
    model = gd.SparseAggregateGP(X, fold.train.y, aggregate="sum", num_features=1000)
    gd.fit(model, restarts=0, progress=False)
    return _predicted(model, new, labelled=False)
