"""Do support vector machines, principal components and k-means work better on clouds than on pixels?

The data are scikit-learn's 1797 digits of 8 x 8 pixels. Three sides:

- ``pixels``: the 64 intensities, divided by their sum as for the clouds;
- ``sw2``: the embedding of the sliced Wasserstein distance of order two with 50 slices and 50
  quantiles, where each pixel is an atom weighted by its intensity;
- ``sw2 centred``: the same for clouds shifted to mean zero.

Columns:

- ``accuracy``: mean over seeds for a support vector machine with a Gaussian kernel of the distance,
  trained on 600 digits and tested on 600 others, with the lowest and highest. Threefold
  cross-validation on the training digits selects the lengthscale, 1/4 to 1 of the median distance,
  and C, 1 to 100.
- ``pca_k``: the share of variance of all digits in the first k principal components.
- ``v_measure``: agreement of ten k-means clusters with the ten digits, mean over seeds of the
  initialisation.

    python -m benchmarks.prediction.digits_machines [--quick] [--seeds 5]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import v_measure_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

from benchmarks.harness import Options, Row, main, progress
from gp_distributions import EmbeddingTransformer, PointClouds

COMPONENTS = (2, 5, 10, 20)
LENGTHSCALES = (0.25, 0.5, 1.0)
PENALTIES = (1.0, 10.0, 100.0)
STARTS = 3

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def embedded(clouds: PointClouds, size: int) -> dict[str, Array]:
    """Return the embeddings of clouds, and of clouds shifted to mean zero."""
    found: dict[str, Array] = {}
    for side, center in (("sw2", False), ("sw2 centred", True)):
        options = {"num_slices": size, "num_quantiles": size, "center": center}
        transformer = EmbeddingTransformer("sliced_wasserstein", options=options)
        found[side] = np.asarray(transformer.fit_transform(clouds), dtype=np.float64)
    return found


def features(images: Array, *, quick: bool) -> dict[str, Array]:
    """Return the features of each side; their Euclidean distances are its distances."""
    pixels = images.reshape(len(images), -1)
    sides = embedded(PointClouds.from_images(images), 10 if quick else 50)
    return {"pixels": pixels / pixels.sum(1, keepdims=True), **sides}


def accuracy(squared: Array, labels: Labels, train: Labels, test: Labels) -> float:
    """Accuracy of the machine selected by cross-validation on the training digits."""
    within, across = squared[np.ix_(train, train)], squared[np.ix_(test, train)]
    median = np.median(within[np.triu_indices(len(train), 1)])
    best, chosen = -np.inf, 0.0
    for factor in LENGTHSCALES:
        scale = -0.5 / (factor**2 * median)
        search = GridSearchCV(SVC(kernel="precomputed"), {"C": PENALTIES}, cv=3)
        search.fit(np.exp(scale * within), labels[train])
        if search.best_score_ > best:
            best = search.best_score_
            chosen = float(search.score(np.exp(scale * across), labels[test]))
    return chosen


def run(options: Options) -> list[Row]:
    """Return one row per side."""
    count, size = (300, 100) if options.quick else (1797, 600)
    digits = load_digits()
    images, labels, index = digits.images[:count], digits.target[:count], np.arange(count)
    rows: list[Row] = []
    sides = features(images, quick=options.quick)
    for side, values in progress(sides.items(), "digits"):
        squared = euclidean_distances(values, squared=True)
        accuracies, agreements = [], []
        for seed in range(options.seeds):
            sizes = {"train_size": size, "test_size": size}
            parts = train_test_split(index, stratify=labels, random_state=seed, **sizes)
            accuracies.append(accuracy(squared, labels, *parts))
            clusters = KMeans(10, n_init=STARTS, random_state=seed).fit_predict(values)
            agreements.append(float(v_measure_score(labels, clusters)))
        shares = PCA(max(COMPONENTS), random_state=0).fit(values).explained_variance_ratio_.cumsum()
        rows.append(
            {
                "side": side,
                "accuracy": float(np.mean(accuracies)),
                "lowest": min(accuracies),
                "highest": max(accuracies),
                **{f"pca_{k}": float(shares[k - 1]) for k in COMPONENTS},
                "v_measure": float(np.mean(agreements)),
            }
        )
    return rows


if __name__ == "__main__":
    main(run)
