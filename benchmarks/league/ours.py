"""The package: a model without a kernel, and the stacked comparison of the default kernels."""

from __future__ import annotations

from typing import Any

import gp_distributions as gd
from benchmarks.league.scores import Fold, Prediction, Probabilities, normal
from gp_distributions.kernels import default_kernels


def _predicted(model: Any, fold: Fold) -> Prediction:
    X = fold.test.clouds
    if fold.labelled:
        return Probabilities(model.predict_proba(X).numpy())
    mean, std = model.predict(X)
    return normal(mean.numpy(), std.numpy())


def default(fold: Fold) -> Prediction:
    """The model that has no kernel before ``fit``."""
    make: Any = gd.ClassificationGP if fold.labelled else gd.DistributionGP
    return _predicted(gd.fit(make(fold.train.clouds, fold.train.y), progress=False), fold)


def comparison(fold: Fold) -> Prediction:
    """The stack of the default kernels."""
    X, y = fold.train.clouds, fold.train.y
    found = gd.compare(default_kernels(X), X, y, classification=fold.labelled, progress=False)
    return _predicted(found.model(), fold)
