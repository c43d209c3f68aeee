"""Predictions for given objects, and their scores in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, norm
from torch import Tensor

from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import as_targets
from gp_distributions.reporting.training import Classifier, Mixed, Model, Training, check_shared
from gp_distributions.reporting.words import writer

Array = npt.NDArray[np.float64]

LEVELS = (0.5, 0.8, 0.9, 0.95)
# Chance that any count of an output lies outside its range, if the probabilities are right. It is shared
# out evenly (Bonferroni): among the levels above and that of the report, or among bins and their total.
_ANY_OUTSIDE = 0.05
# A bin of probabilities holds at least this many objects; there are at most so many bins.
_FEWEST, _MOST_BINS = 10, 10


@dataclass(frozen=True)
class Hits:
    """How often something happened, beside how often it should have happened.

    Attributes:
        nominal: Probability with which it should happen, on average.
        count: Number of times that it happened.
        total: Number of objects.
        low: Smallest number of times that chance explains, if the probabilities are right. All counts
            of an output lie in their ranges with a probability of about 95%.
        high: Largest such number.
    """

    nominal: float
    count: int
    total: int
    low: int
    high: int

    @property
    def share(self) -> float:
        """Share of the objects for which it happened."""
        return self.count / self.total

    @property
    def verdict(self) -> int:
        """-1 if it happened less often than chance explains, 1 if more often, 0 otherwise."""
        return int(self.count > self.high) - int(self.count < self.low)


@dataclass(frozen=True, eq=False)
class Regression:
    """Predictions of one output and their scores.

    Attributes:
        truth: The ``N`` measured values.
        mean: The ``N`` predicted means.
        std: The ``N`` predicted standard deviations of measurements.
    """

    truth: Array
    mean: Array
    std: Array

    @property
    def write(self) -> Callable[[float], str]:
        """A function that writes values to the precision of the predictions."""
        return writer(float(np.median(self.std)))

    @property
    def rmse(self) -> float:
        """Root mean square error."""
        return math.sqrt(np.square(self.errors).mean())

    @property
    def constant(self) -> float:
        """Root mean square error of always predicting the mean of the measured values."""
        return float(self.truth.std())

    @property
    def r_squared(self) -> float:
        """Share of the variance that predictions explain; NaN if all measured values are equal."""
        return 1 - (self.rmse / self.constant) ** 2 if self.constant else math.nan

    @property
    def errors(self) -> Array:
        """Absolute errors."""
        return np.abs(self.truth - self.mean)

    @property
    def badness(self) -> Array:
        """How bad each prediction is, relative to the others."""
        return self.errors / (self.rmse or 1.0)

    def half_width(self, level: float) -> Array:
        """Return half of the width of the central interval of each prediction."""
        return self.std * float(norm.ppf(0.5 + level / 2))

    def coverage(self, level: float) -> Hits:
        """Count the measured values inside the central intervals."""
        inside = self.errors <= self.half_width(level)
        total = len(self.truth)
        low, high = binom.interval(1 - _ANY_OUTSIDE / (len(LEVELS) + 1), total, level)
        return Hits(level, int(inside.sum()), total, int(low), int(high))


@dataclass(frozen=True, eq=False)
class Classification:
    """Class probabilities and their scores.

    Attributes:
        classes: The ``C`` classes, as text.
        truth: Indices of the ``N`` observed classes.
        probabilities: The predicted probabilities, ``N x C``.
    """

    classes: list[str]
    truth: npt.NDArray[np.int64]
    probabilities: Array

    @property
    def predicted(self) -> npt.NDArray[np.int64]:
        """Indices of the most probable classes."""
        return self.probabilities.argmax(1)

    def write(self, index: float) -> str:
        """Return the name of a class."""
        return self.classes[int(index)]

    @property
    def of_truth(self) -> Array:
        """Probabilities that were predicted for the observed classes."""
        return np.take_along_axis(self.probabilities, self.truth[:, None], 1)[:, 0]

    @property
    def badness(self) -> Array:
        """How bad each prediction is, relative to the others."""
        return -self.of_truth

    @property
    def frequent(self) -> tuple[str, float]:
        """The most frequent of the observed classes, and its share."""
        counts = np.bincount(self.truth, minlength=len(self.classes))
        return self.classes[int(counts.argmax())], float(counts.max() / len(self.truth))

    @property
    def log_loss(self) -> float:
        """Mean negative logarithm of the probabilities of the observed classes."""
        return float(-np.log(self.of_truth).mean())

    @property
    def constant_log_loss(self) -> float:
        """Log loss of always predicting the frequencies of the observed classes."""
        shares = np.bincount(self.truth) / len(self.truth)
        return float(-np.log(shares[self.truth]).mean())

    def hits(self, chosen: npt.NDArray[Any] | slice = slice(None)) -> Hits:
        """Count how often the most probable class was observed, over some of the objects."""
        right = (self.predicted == self.truth)[chosen]
        probable = self.probabilities.max(1)[chosen]
        centre = probable.sum()
        # The normal approximation of a sum of unequal coins.
        quantile = float(norm.isf(_ANY_OUTSIDE / (self._num_bins + 1) / 2))
        reach = quantile * math.sqrt((probable * (1 - probable)).sum()) + 0.5
        total = len(right)
        low, high = max(math.ceil(centre - reach), 0), min(math.floor(centre + reach), total)
        return Hits(float(probable.mean()), int(right.sum()), total, low, high)

    def bins(self) -> list[Hits]:
        """Count hits in bins of objects whose most probable classes have similar probabilities."""
        order = self.probabilities.max(1).argsort(kind="stable")
        return [self.hits(part) for part in np.array_split(order, self._num_bins)]

    @property
    def _num_bins(self) -> int:
        return min(_MOST_BINS, max(len(self.truth) // _FEWEST, 1))

    def table(self) -> list[list[int]]:
        """Count the objects of each observed class, by the class that was predicted."""
        edges = np.arange(len(self.classes) + 1)
        counts = np.histogram2d(self.truth, self.predicted, bins=(edges, edges))[0]
        return counts.astype(int).tolist()


@dataclass(frozen=True, eq=False)
class Judged:
    """Predictions for given objects.

    Attributes:
        outputs: The predictions of each output, or those of the classes.
        places: Number of each object among the training objects, or -1. The former are predicted from
            all other training objects.
        checked: Whether the model keeps its training objects, so that they could be compared.
    """

    outputs: Sequence[Regression | Classification]
    places: npt.NDArray[np.int64]
    checked: bool

    @property
    def badness(self) -> Array:
        """How bad the prediction of each output is for each object, ``outputs x N``."""
        return np.stack([output.badness for output in self.outputs])


def judge(
    model: Model | Mixed, X: Inputs | Tensor, rows: Tensor, y: Any, training: Training | None
) -> Judged:
    """Predict objects and compare the predictions with their values.

    Args:
        model: A fitted model.
        X: The ``N`` objects.
        rows: Their rows.
        y: Their targets or labels.
        training: The training objects of the model, if it keeps them.

    Raises:
        ValueError: If the number of values is wrong, a value is missing, a label is not one of the
            classes of the model, or the members of a mixture have different training objects.
    """
    if isinstance(model, Classifier):
        classes, truth = _observed_classes(model, y, len(rows))
        values = truth[:, None].astype(float)
        moments: tuple[Tensor, ...] = (model.predict_proba(rows),)
    else:
        targets, _ = as_targets(y, rows)
        if targets.shape[-1] != model.num_outputs:
            raise ValueError(
                f"Expected targets of {model.num_outputs} outputs, which the model predicts, got "
                f"{targets.shape[-1]}."
            )
        values = targets.double().numpy(force=True)
        moments = model.predict(X)
    places = np.full(len(rows), -1) if training is None else training.places(rows, values)
    if isinstance(model, Mixed):
        check_shared(model, rows, values, places)
    predicted = [m.reshape(len(rows), -1).double().numpy(force=True).copy() for m in moments]
    seen = places >= 0
    if seen.any():
        classify = isinstance(model, Classifier)
        left_out = (model.leave_one_out_proba(),) if classify else model.leave_one_out()
        for moment, without in zip(predicted, left_out, strict=True):
            moment[seen] = without.reshape(len(without), -1).numpy(force=True)[places[seen]]
    outputs: list[Regression | Classification]
    if isinstance(model, Classifier):
        outputs = [Classification(classes, truth, *predicted)]
    else:
        mean, std = predicted
        outputs = [Regression(*each) for each in zip(values.T, mean.T, std.T, strict=True)]
    return Judged(outputs, places, training is not None)


def _observed_classes(
    model: Classifier, y: Any, count: int
) -> tuple[list[str], npt.NDArray[np.int64]]:
    labels = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if labels.shape != (count,):
        raise ValueError(
            f"Expected one label for each of {count} objects, got labels of shape {labels.shape}."
        )
    known = model.classes_.tolist()
    for number, label in enumerate(labels.tolist()):
        if label not in known:
            raise ValueError(
                f"Expected labels from {known}, which the model knows, but that of object "
                f"{number} is {label!r}."
            )
    return list(map(str, known)), np.array([known.index(label) for label in labels.tolist()])
