"""Predictions for given objects, each from data without it, and how often they are right."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gp_distributions.judging import ClassPredictions, NormalPredictions
from gp_distributions.kernels.covariances import covariance
from gp_distributions.measures.targets import as_targets
from gp_distributions.models import DistributionGP, SparseDistributionGP
from gp_distributions.models.mixture_classifier import Classifier
from gp_distributions.models.training import training_rows, training_targets

Model: TypeAlias = DistributionGP | SparseDistributionGP
Judged: TypeAlias = NormalPredictions | ClassPredictions
# Training objects: rows before the input transform, and values in their own units.
Training: TypeAlias = tuple[Tensor, Tensor]

LEVELS = (0.5, 0.8, 0.9, 0.95)
# Chance that any count of an output lies outside its range, if the probabilities are right. It is shared
# out evenly (Bonferroni).
_ANY_OUTSIDE = 0.05
# A bin of probabilities holds at least this many objects; there are at most so many bins.
_FEWEST, _MOST_BINS = 10, 10
# Training objects to compare at a time, which bounds memory; and those whose pairs give the unit.
_BATCH, _MOST_POOLED = 1024, 256


def training_of(model: Model) -> Training | None:
    """Return the training objects of a model, or None if it does not keep them in memory."""
    rows, values = training_rows(model), training_targets(model)
    known = rows is not None and values is not None
    return (rows.detach(), values.detach().double().cpu()) if known else None  # type: ignore[union-attr]


def judge(
    model: Any, X: Any, rows: Tensor, y: Any, training: Training | None
) -> tuple[list[Judged], list[int]]:
    """Predict objects, those of the training data from all others.

    Returns:
        The predictions of each output, or those of the classes, and the number of each object among the
        training objects, or -1.
    """
    classify = isinstance(model, Classifier)
    if classify:
        labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y).ravel().tolist()
        known = model.classes_.tolist()
        if unknown := set(labels) - set(known):
            raise ValueError(f"Expected labels that the model knows, {known}, got {unknown}.")
        y = np.array([known.index(label) for label in labels], dtype=float)
    values = as_targets(y, rows)[0].detach().double().cpu()
    if not classify and values.shape[-1] != model.num_outputs:
        raise ValueError(f"Expected {model.num_outputs} outputs, got {values.shape[-1]}.")
    found = (model.predict_proba(rows),) if classify else model.predict(X)
    moments = [m.detach().double().cpu().reshape(len(rows), -1).clone() for m in found]
    places = torch.full([len(rows)], -1) if training is None else _places(training, rows, values)
    if (seen := places >= 0).any():
        left_out = (model.leave_one_out_proba(),) if classify else model.leave_one_out()
        for moment, without in zip(moments, left_out, strict=True):
            moment[seen] = without.detach().double().cpu().reshape(len(without), -1)[places[seen]]
    if classify:
        return [ClassPredictions.of(values[:, 0].long(), *moments)], places.tolist()
    outputs = zip(*(x.mT for x in (values, *moments)), strict=True)
    return [NormalPredictions.of(*output) for output in outputs], places.tolist()


def _places(training: Training, rows: Tensor, values: Tensor) -> Tensor:
    """Find objects among those of training by their rows, up to padding, and their values.

    Repeated measurements of the training inputs are thus new objects.
    """
    found, known, targets = [], defaultdict(list), training[1]
    for place, row in enumerate(training[0].numpy(force=True)):
        known[np.trim_zeros(row, "b").tobytes()].append(place)
    spread = (targets - targets.mean(0)).abs().amax(0)
    near = torch.finfo(rows.dtype).eps ** 0.5 * spread
    for row, value in zip(rows.numpy(force=True), values, strict=True):
        same = known.get(np.trim_zeros(row, "b").tobytes(), [])
        found += [*(i for i in same if ((targets[i] - value).abs() <= near).all()), -1][:1]
    return torch.tensor(found)


def counts(found: Judged, level: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Count targets in intervals of one level, and of several; or classes that are right.

    Of classes, the counts are those of all objects, and of bins with similar probabilities.
    """
    if isinstance(found, NormalPredictions):
        levels = sorted({*LEVELS, level})
        each = [_count(p, found.covered(p), len(LEVELS) + 1) for p in levels]
        return each[levels.index(level)], each
    probable, predicted = found.probabilities[0].max(-1)
    right = predicted == found.targets
    bins = probable.argsort().tensor_split(min(_MOST_BINS, max(len(right) // _FEWEST, 1)))
    parts = [torch.arange(len(right)), *bins]
    each = [_count(float(probable[part].mean()), right[part], len(parts)) for part in parts]
    return each[0], each[1:]


def _count(nominal: float, happened: Tensor, ranges: int) -> dict[str, Any]:
    """Count how often something happened, and how often chance explains, as one of several ranges."""
    from scipy.stats import binom

    count, total = int(happened.sum()), len(happened)
    low, high = map(int, binom.interval(1 - _ANY_OUTSIDE / ranges, total, nominal))
    found = {"nominal": nominal, "count": count, "total": total, "low": low, "high": high}
    return found | {"share": count / total, "verdict": int(count > high) - int(count < low)}


def nearest(
    model: Model, rows: Tensor, training: Tensor, own: list[int], count: int
) -> tuple[list[list[int]], list[list[float]]]:
    """Find the training objects nearest to each row, in the eyes of the kernel, and their distances.

    The distance is the prior standard deviation of the difference of the function at two objects,
    divided by its root mean square over pairs of training objects. Objects of the training data, with
    the numbers ``own`` rather than -1, are not their own neighbours.
    """
    pooled = training[:: -(-len(training) // _MOST_POOLED)]
    with torch.no_grad():
        pairs = _squared(model, pooled, pooled)
        parts = [_squared(model, rows, part) for part in training.split(_BATCH)]
    unit = pairs.sum() / max(len(pooled) * (len(pooled) - 1), 1)
    distances = (torch.cat(parts, -1) / (unit if unit > 0 else 1.0)).sqrt()
    for row, place in zip(distances, own, strict=True):
        row[place if place >= 0 else slice(0)] = torch.inf
    found, count = distances.sort(stable=True), min(count, len(training) - 1)
    return found.indices[:, :count].tolist(), found.values[:, :count].tolist()


def _squared(model: Model, rows: Tensor, others: Tensor) -> Tensor:
    """Return squared distances, averaged over outputs with kernels of their own."""
    kernel, both = model.covar_module, [model.eval().transform_inputs(x) for x in (rows, others)]
    first, second = (covariance(kernel, x, diag=True) for x in both)
    found = first.unsqueeze(-1) + second.unsqueeze(-2) - 2 * covariance(kernel, *both)
    return found.clamp_min(0).reshape(-1, *found.shape[-2:]).mean(0)
