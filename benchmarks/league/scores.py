"""Predictions of held-out bags, and their scores, the same for all methods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.league.sets import Array, Task

Scores = dict[str, float]
# The smallest probability that a method is held to.
_LEAST = 1e-4


@dataclass(frozen=True)
class Fold:
    """Bags for training and for testing.

    Attributes:
        train: Bags with their targets.
        test: Bags whose targets no method reads.
        seed: The repetition, from which methods draw.
    """

    train: Task
    test: Task
    seed: int

    @property
    def y(self) -> NDArray[Any]:
        """Training targets; labels as class indices in sorted order."""
        return np.unique(self.train.y, return_inverse=True)[1] if self.labelled else self.train.y

    @property
    def labelled(self) -> bool:
        """Whether targets are labels."""
        return self.train.labelled

    def bags(self) -> tuple[list[Array], list[Array]]:
        """Return training and test bags, with columns standardised over the training atoms."""
        train, test = self.train.bags(), self.test.bags()
        atoms = np.concatenate(train)
        mean, std = atoms.mean(0), atoms.std(0)
        std[std < 1e-12] = 1.0
        return [(bag - mean) / std for bag in train], [(bag - mean) / std for bag in test]


@dataclass(frozen=True)
class Probabilities:
    """Probabilities of the classes, in sorted order: ``N x C``."""

    values: Array


@dataclass(frozen=True)
class Moments:
    """Means and standard deviations of targets, and half the widths of 95% intervals."""

    mean: Array
    std: Array
    half: Array


Prediction = Probabilities | Moments


def normal(mean: Array, std: Array) -> Moments:
    """Return normal predictions."""
    return Moments(mean, std, norm.ppf(0.975) * std)


def conformal(mean: Array, residuals: Array) -> Moments:
    """Return predictions with the spread of residuals of training bags that were held out.

    The deviation is the root mean square of the residuals, and the interval has the split conformal
    quantile of their sizes: the ``ceil(.95 (n + 1))``-th smallest, or the largest.
    """
    sizes = np.sort(np.abs(residuals))
    rank = min(math.ceil(0.95 * (len(sizes) + 1)), len(sizes))
    one = np.ones_like(mean)
    return Moments(mean, math.sqrt(np.mean(residuals**2)) * one, sizes[rank - 1] * one)


def scored(found: Prediction, fold: Fold, unit: float) -> Scores:
    """Return accuracy or R^2 as ``skill``, the mean negative log density, and scores of intervals.

    Args:
        found: Predictions of the test bags.
        fold: The bags.
        unit: Standard deviation of all targets, if they are numbers.
    """
    y: Any = fold.test.y
    if isinstance(found, Probabilities):
        index = np.searchsorted(np.unique(fold.train.y), y)
        values = np.clip(found.values, _LEAST, None)
        chances = (values / values.sum(1, keepdims=True))[np.arange(len(y)), index]
        accuracy = np.mean(found.values.argmax(1) == index)
        return {"skill": float(accuracy), "loss": float(-np.log(chances).mean())}
    errors = (y - found.mean) / unit
    density = norm.logpdf(errors, scale=found.std / unit)
    return {
        "skill": float(1 - np.mean(errors**2)),
        "loss": float(-density.mean()),
        "coverage": float(np.mean(np.abs(errors) * unit <= found.half)),
        "width": float(np.mean(2 * found.half) / unit),
    }
