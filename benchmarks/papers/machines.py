"""Support vector machines on Gram matrices, with C by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

# The grid of Muandet et al. 2012.
PENALTIES = tuple(2.0**k for k in range(-3, 8))
# Solvers stop here: entries of Gram matrices of polynomial kernels reach 10^30.
ITERATIONS = 20_000


def machine(penalty: float) -> SVC:
    """Make a support vector machine on Gram matrices."""
    return SVC(kernel="precomputed", C=penalty, max_iter=ITERATIONS)


def cross_validate(
    gram: Array, labels: Labels, folds: Iterable[tuple[Labels, Labels]]
) -> tuple[float, float]:
    """Select C by cross-validation.

    Args:
        gram: An ``N x N`` Gram matrix.
        labels: ``N`` labels.
        folds: Indices for training and testing, each index in one test fold.

    Returns:
        The best C, the smallest of several, and its accuracy.
    """
    right = np.zeros(len(PENALTIES))
    for train, test in folds:
        within, across = gram[np.ix_(train, train)], gram[np.ix_(test, train)]
        for i, penalty in enumerate(PENALTIES):
            fitted = machine(penalty).fit(within, labels[train])
            count = np.sum(fitted.predict(across) == labels[test])
            right[i] += count
            if np.abs(fitted.dual_coef_).max() < penalty:
                right[i + 1 :] += count  # no bound is active: a larger C gives the same machine
                break
    best = int(right.argmax())
    return PENALTIES[best], float(right[best]) / len(labels)
