r"""Do components, clusters and support vector machines work better on images and leaves as clouds?

The experiments follow Kolouri, Zou and Rohde 2016, with kernels of the sliced Wasserstein distance.

- ``MNIST 0`` and ``MNIST 15``: 1000 / 300 / 500 images for training, validation and testing
  (``image_protocol``), unchanged or rotated by up to 15 degrees and placed at random;
- ``leaves``: outlines of 442 leaves of six species, 128 points at equal arc length (``leaf`` of the
  league), 240 / 80 / 122 drawn at random.

The features are those of ``digits_machines``: ``pixels``, ``sw2`` and ``sw2 centred``. Leaves have the
``coordinates`` of corresponding points instead of pixels, and ``sw2 rigid``, which does not see the
pose. Each has three kernels of the features ``x``, centred at the mean of the training images. In the
paper, the template is the average distribution of the data set, a mixture, which differs for the
polynomial kernel only:

- ``linear``, :math:`\langle x, y \rangle`;
- ``gaussian``, :math:`\exp(-|x - y|^2 / 2 \ell^2)`, with a lengthscale of 1/4, 1/2 or 1 median
  distance;
- ``polynomial``, :math:`(1 + \langle x, y \rangle / s)^p`, with ``s`` the mean squared norm and p = 2
  or 3.

Columns are means over seeds (runs):

- ``pca_k``: the share of variance of the training images in the first k principal components of the
  kernel, at the median distance and p = 2;
- ``v_measure``: agreement of clusters of the training images with their classes, as many as there are,
  by k-means in the feature space of that kernel; ``spectral``: the same by spectral clustering with that
  kernel as affinities, which must not be negative, as those of the linear kernel may be;
- ``accuracy``: of a support vector machine on test images, with ``lowest`` and ``highest``. The
  validation images select the lengthscale or power, and a penalty of 1, 10 or 100.

The data of the paper, textures of the University of Illinois and the LHI animal faces, are in no
package; ``textures`` has other textures. Nor are the data sets on which other papers test kernels on
distributions: USPS digits and natural scenes (Muandet et al. 2012) and the aerosol data of MISR (Szabo
et al. 2015).

    python -m benchmarks.papers.image_embeddings [--quick] [--seeds 5] [--data-dir FOLDER]

Leaves need the files of aeon (``pip install --no-deps aeon``). With ``--quick``, scikit-learn's digits,
8 x 8 pixels, serve instead. Without the images there is one row, which says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import v_measure_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from benchmarks.harness import Options, Row, main, means
from benchmarks.league.sets import outlines
from benchmarks.papers.image_protocol import Counts, load, split
from benchmarks.prediction.digits_machines import PENALTIES, STARTS, embedded, features
from benchmarks.prediction.image_classification import digits
from gp_distributions import EmbeddingTransformer, PointClouds

ANGLES: Sequence[int] = (0, 15)
COMPONENTS = (2, 5, 10, 20, 50)
COLUMNS = (*(f"pca_{k}" for k in COMPONENTS), "v_measure", "spectral", "accuracy")
LEAVES = (240, 80, 122)

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]
# Results of one run, by side and kernel.
Results = Mapping[tuple[str, str], Mapping[str, float]]


def kernels(train: Array) -> dict[str, list[Kernel]]:
    """Kernels of each kind; the last one of each is used for components and clusters."""
    squared = euclidean_distances(train, squared=True)
    median = np.median(squared[np.triu_indices(len(train), 1)])
    scale = np.square(train).sum(1).mean()

    def gaussian(factor: float, x: Array, y: Array) -> Array:
        return np.exp(-euclidean_distances(x, y, squared=True) / (2 * factor**2 * median))

    def polynomial(power: int, x: Array, y: Array) -> Array:
        return (1 + x @ y.T / scale) ** power

    return {
        "linear": [lambda x, y: x @ y.T / scale],
        "gaussian": [partial(gaussian, factor) for factor in (0.25, 0.5, 1.0)],
        "polynomial": [partial(polynomial, power) for power in (3, 2)],
    }


def components(gram: Array) -> tuple[Array, Array]:
    """Shares of the variance and scores of the principal components of a kernel."""
    rows = gram.mean(0)
    values, vectors = np.linalg.eigh(gram - rows - rows[:, None] + rows.mean())
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    return values / values.sum(), vectors * np.sqrt(values)


def accuracy(
    choices: Sequence[Kernel], parts: Sequence[Array], labels: Sequence[NDArray[np.int64]]
) -> float:
    """Test accuracy of the machine that is best on the validation images."""
    train, validation, test = parts
    best, chosen = -1.0, 0.0
    for kernel in choices:
        gram, to_validation, to_test = (kernel(part, train) for part in (train, validation, test))
        for penalty in PENALTIES:
            machine = SVC(kernel="precomputed", C=penalty).fit(gram, labels[0])
            score = machine.score(to_validation, labels[1])
            if score > best:
                best, chosen = score, float(machine.score(to_test, labels[2]))
    return chosen


def results(
    sides: Mapping[str, Array], labels: Sequence[NDArray[np.int64]], seed: int
) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    """Yield the results of one run, for each side and kernel.

    Args:
        sides: Features of each side: of training, validation and test images, in this order.
        labels: Labels of the images of each part.
        seed: Random seed of clusterings.
    """
    borders = np.cumsum([len(part) for part in labels])[:-1]
    classes = len(np.unique(labels[0]))
    for side, values in sides.items():
        parts = np.split(values - values[: borders[0]].mean(0), borders)
        for kind, choices in kernels(parts[0]).items():
            gram = choices[-1](parts[0], parts[0])
            shares, scores = components(gram)
            clusters = KMeans(classes, n_init=STARTS, random_state=seed).fit_predict(scores)
            found = {f"pca_{k}": float(shares[:k].sum()) for k in COMPONENTS}
            found["v_measure"] = float(v_measure_score(labels[0], clusters))
            if kind != "linear":
                grouping = SpectralClustering(
                    classes, affinity="precomputed", n_init=STARTS, random_state=seed
                )
                found["spectral"] = float(v_measure_score(labels[0], grouping.fit_predict(gram)))
            yield (side, kind), found | {"accuracy": accuracy(choices, parts, labels)}


def averaged(name: str, each: Iterable[Results]) -> list[Row]:
    """Return the means over runs, one row per side and kernel."""
    runs, rows = list(each), []
    for side, kind in runs[0]:
        scores = [one[side, kind] for one in runs]
        accuracies = [one["accuracy"] for one in scores]
        row: Row = {"images": name, "side": side, "kernel": kind, **means(scores)}
        row = {key: row.get(key) for key in ("images", "side", "kernel", *COLUMNS)}
        rows.append(row | {"lowest": min(accuracies), "highest": max(accuracies)})
    return rows


def on_leaves(seeds: Iterable[int]) -> Iterator[Results]:
    """Yield the results of each run on the outlines of leaves."""
    task = outlines("OSULeaf")
    points = PointClouds(task.clouds.positions)
    rigid = EmbeddingTransformer("rigid_sliced_wasserstein").fit_transform(points)
    sides = {"coordinates": task.aligned, **embedded(points, 50), "sw2 rigid": rigid}
    species = np.unique(task.y, return_inverse=True)[1]
    for seed in seeds:
        shuffled = partial(train_test_split, random_state=seed)
        known, new = shuffled(np.arange(len(species)), test_size=LEAVES[2], stratify=species)
        parts = *shuffled(known, test_size=LEAVES[1], stratify=species[known]), new
        order = np.concatenate(parts)
        values = {side: np.asarray(each)[order] for side, each in sides.items()}
        yield dict(results(values, [species[part] for part in parts], seed))


def run(options: Options) -> list[Row]:
    """Return one row per set of images, side and kernel."""
    name, angles, seeds, counts = "MNIST", ANGLES, options.seeds, Counts()
    if options.quick:
        name, angles, seeds, counts = "digits", (0,), 1, Counts(10, 5, 5)
    try:
        pool = digits() if options.quick else load(name, options.data_dir)
    except OSError as error:
        return [{"images": name, "skipped": str(error)}]

    def results_of(degrees: int, seed: int) -> Results:
        drawn = split(pool, seed, degrees=degrees, counts=counts)
        parts = (drawn.train, drawn.validation, drawn.test)
        images = np.concatenate([part.images.double().numpy() for part in parts])
        labels = [part.labels.numpy() for part in parts]
        return dict(results(features(images, quick=options.quick), labels, seed))

    rows = [
        row
        for degrees in angles
        for row in averaged(
            f"{name} {degrees}", (results_of(degrees, seed) for seed in range(seeds))
        )
    ]
    return rows if options.quick else rows + averaged("leaves", on_leaves(range(seeds)))


if __name__ == "__main__":
    main(run)
