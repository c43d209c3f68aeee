"""Peers that compare bags by kernels of their atoms: the set kernel, and random Fourier features."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.league.scores import Fold, Prediction
from benchmarks.league.sets import Array
from benchmarks.league.tables import machine, predicted, search

# The set kernel reads so many atoms in all, at random, and features are so many.
_ATOMS, _FEATURES = 10_000, 300
# Widths of Gaussian kernels, relative to the median distance between atoms.
_WIDTHS = (0.25, 0.5, 1.0, 2.0)


def median_distance(bags: list[Array], rng: np.random.Generator) -> float:
    """Return the median distance between some atoms."""
    atoms = rng.permutation(np.concatenate(bags))[:1000]
    return float(np.median(cdist(atoms, atoms)[np.triu_indices(len(atoms), 1)]))


def set_kernel(fold: Fold) -> Prediction:
    """A support vector machine with the normalised set kernel of Gaertner et al. (2002)."""
    rng = np.random.default_rng(fold.seed)
    train, test = fold.bags()
    bags, unit = train + test, median_distance(train, rng)
    most = max(1, _ATOMS // len(bags)) if sum(map(len, bags)) > _ATOMS else _ATOMS
    bags = [rng.permutation(bag)[:most] for bag in bags]
    starts = np.cumsum([0, *map(len, bags[:-1])])
    atoms = np.concatenate(bags)
    sums = {width: np.empty((len(bags), len(bags))) for width in _WIDTHS}
    for i, bag in enumerate(bags):
        squared = cdist(bag, atoms, "sqeuclidean")
        for width, gram in sums.items():
            values = np.exp(-squared / (2 * (width * unit) ** 2)).sum(0)
            gram[i] = np.add.reduceat(values, starts)
    n, grams = len(train), {}
    for width, gram in sums.items():
        root = np.sqrt(np.diag(gram))
        gram = gram / root / root[:, None]
        grams[width] = gram[:n, :n], gram[n:, :n]
    return machine(grams, fold, kernel="precomputed")


def random_features(fold: Fold) -> Prediction:
    """Ridge or logistic regression on random Fourier features of mean embeddings."""
    rng = np.random.default_rng(fold.seed)
    train, test = fold.bags()
    unit = median_distance(train, rng)
    frequencies = rng.standard_normal((train[0].shape[1], _FEATURES))
    made = LogisticRegression(max_iter=2000) if fold.labelled else Ridge()
    name, powers = ("C", np.arange(-1.0, 4)) if fold.labelled else ("alpha", np.arange(-5.0, 2))
    tried = []
    for width in _WIDTHS:
        X, new = (
            np.stack([mean_features(bag @ frequencies / (width * unit)) for bag in bags])
            for bags in (train, test)
        )
        found = search(made, {name: list(10**powers)}, X, fold)
        tried.append((found.best_score_, found.best_estimator_, X, new))
    _, chosen, X, new = max(tried, key=lambda one: one[0])
    return predicted(chosen, X, new, fold)


def mean_features(phases: Array) -> Array:
    """Return the means over atoms of cosines and sines."""
    return np.concatenate([np.cos(phases).mean(0), np.sin(phases).mean(0)])
