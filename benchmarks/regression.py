"""Models of targets and scores of their predictions, the same for all benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from sklearn.metrics import explained_variance_score, r2_score
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Row, means
from gp_distributions.distances import Distance
from gp_distributions.metrics import calibration

Scores = dict[str, float]


def kernel_of(distance: Distance, profile: str = "matern52") -> Kernel:
    """Return a scaled kernel of a distance."""
    return ScaleKernel(gd.DistributionKernel(distance, profile))


def fitted(distance: Distance | None, X: Any, y: Tensor, profile: str = "matern52") -> Any:
    """Return a model of a distance, or one without a kernel, after ``fit``."""
    kernel = None if distance is None else kernel_of(distance, profile)
    return gd.fit(gd.DistributionGP(X, y, kernel), progress=False)


def score_of(y: Any, mean: Any, std: Any) -> Scores:
    """Return the scores of predictions."""
    found = calibration(y, mean, std)
    return {
        "r2": float(r2_score(y, mean)),
        "evs": float(explained_variance_score(y, mean)),
        "rmse": float(found.rmse),
        "coverage": float(found.coverage),
        "nlpd": float(found.nlpd),
    }


def score(model: Any, X: Any, y: Tensor) -> Scores:
    """Return the scores of the predictions of a model."""
    return score_of(y, *model.predict(X))


def numbers(count: int) -> Tensor:
    """Return the numbers of objects, which kernels of precomputed distances read."""
    return torch.arange(count, dtype=torch.float64).unsqueeze(-1)


def precomputed(squared: Tensor, profile: str = "matern52") -> gd.DistributionKernel:
    """Return a kernel of precomputed squared distances, which reads the numbers of objects."""
    return gd.DistributionKernel(gd.PrecomputedDistance(squared), profile)


def relative_error(squared: Tensor, targets: Tensor, train: int) -> tuple[float, gd.DistributionGP]:
    """Fit a model of precomputed distances to the first objects, and predict the others.

    Returns:
        The root mean squared error, relative to that of the mean of the training targets, and the model.
    """
    index, truth = numbers(len(targets)), targets[train:]
    model = gd.fit(gd.DistributionGP(index[:train], targets[:train], precomputed(squared)))
    errors = [mean - truth for mean in (model.predict(index[train:])[0], targets[:train].mean())]
    ours, constant = (error.square().mean() for error in errors)
    return float((ours / constant).sqrt()), model


def squared_once(distance: Distance, rows: Tensor, *others: Tensor) -> Tensor:
    """Return squared distances, and let the distance forget what it computed."""
    with torch.no_grad():
        squared = distance.squared(rows, *others)
    distance.clear_cache()
    return squared


def summary(name: str, scores: Sequence[Scores], *columns: str, lowest: str = "r2") -> Row:
    """Return the row of a method: means of columns over seeds, and the lowest value of one."""
    mean: Row = {key: value for key, value in means(scores).items() if key in columns}
    return {"name": name, **mean, "lowest": min(one[lowest] for one in scores)}


def mean_of(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
