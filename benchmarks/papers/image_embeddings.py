r"""Do components, clusters and support vector machines work better on images and shapes as clouds?

The experiments follow Kolouri, Zou and Rohde 2016, with kernels of the sliced Wasserstein distance.
Their data, textures of the University of Illinois and the LHI animal faces, are in no package, so that
their figures have no counterpart here.

- ``digits``: scikit-learn's digits of 8 x 8 pixels, 600 / 200 / 600 images for training, validation and
  testing;
- ``MNIST 0`` and ``MNIST 15``: 1000 / 300 / 500 images (``image_protocol``), unchanged or rotated by up
  to 15 degrees and placed at random;
- ``leaves``: outlines of 442 leaves of six species, 128 points at equal arc length (``leaf`` of the
  league), 240 / 80 / 122 drawn at random;
- ``photo`` and ``relit``: brick, grass and gravel of scikit-image, each cut into 256 patches of 32 x 32
  pixels, of which a run draws 40 / 40 / 120 per texture; patches of one part lie beside patches of
  another. A texture is its co-occurrence matrix, the distribution of the grey levels of two horizontal
  neighbours, in both orders, by 32 grey levels each. Patches are as photographed, or a grey level
  :math:`v` in [0, 1] becomes :math:`a v + (1 - a) b`, with :math:`a` uniform on [1/2, 1] and :math:`b`
  on [0, 1].

The features: ``sw2``, the embedding of the sliced Wasserstein distance of order two with 50 slices and
50 quantiles, where each pixel, point or entry is an atom weighted by its intensity; ``sw2 centred``, the
same for clouds shifted to mean zero; beside them the ``pixels`` of images, divided by their sum, the
``coordinates`` of corresponding points of leaves and ``sw2 rigid``, which does not see the pose, and of
textures the entries (``histogram``) and their square roots (``hellinger``). Each has three kernels of
the features ``x``, centred at the mean of the training images. In the paper, the template is the average
distribution of the data set, a mixture, which differs for the polynomial kernel only:

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

The paper reports that SW kernels need fewer components, find better clusters and classify better. On
textures they classify better than kernels of the entries, and relit patches, which move the matrix, make
the gap wide. Square roots of the entries are a stronger peer: as photographed, they cluster and classify
as well as SW2. Components say little by themselves: those of ``sw2`` on relit patches have most variance
in two, which the light moves, and the worst clusters.

    python -m benchmarks.papers.image_embeddings [--quick] [--seeds 5] [--data-dir FOLDER]

Leaves need the files of aeon, textures those of scikit-image (``pip install --no-deps aeon
scikit-image``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import v_measure_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from benchmarks.data.textures import SIDE, cooccurrence, patches, photographs, relit
from benchmarks.harness import Options, Row, main, means
from benchmarks.league.sets import outlines
from benchmarks.papers.image_protocol import Counts, Images, digits, load, split
from gp_distributions import EmbeddingTransformer, PointClouds

DIGITS, PATCHES = Counts(60, 20, 60), Counts(40, 40, 120)
PENALTIES, STARTS, LEVELS, SIZE = (1.0, 10.0, 100.0), 3, 32, 50
COMPONENTS = (2, 5, 10, 20, 50)
COLUMNS = (*(f"pca_{k}" for k in COMPONENTS), "v_measure", "spectral", "accuracy")
LEAVES = (240, 80, 122)

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]
# Results of one run, by side and kernel.
Results = Mapping[tuple[str, str], Mapping[str, float]]


def embedded(clouds: PointClouds, size: int) -> dict[str, Array]:
    """Return the embeddings of clouds, and of clouds shifted to mean zero."""
    found: dict[str, Array] = {}
    for side, center in (("sw2", False), ("sw2 centred", True)):
        options = {"num_slices": size, "num_quantiles": size, "center": center}
        transformer = EmbeddingTransformer("sliced_wasserstein", options=options)
        found[side] = np.asarray(transformer.fit_transform(clouds), dtype=np.float64)
    return found


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
    sides = {"coordinates": task.aligned, **embedded(points, SIZE), "sw2 rigid": rigid}
    species = np.unique(task.y, return_inverse=True)[1]
    for seed in seeds:
        shuffled = partial(train_test_split, random_state=seed)
        known, new = shuffled(np.arange(len(species)), test_size=LEAVES[2], stratify=species)
        parts = *shuffled(known, test_size=LEAVES[1], stratify=species[known]), new
        order = np.concatenate(parts)
        values = {side: np.asarray(each)[order] for side, each in sides.items()}
        yield dict(results(values, [species[part] for part in parts], seed))


def on_images(
    pool: Images, degrees: int, counts: Counts, size: int, seeds: Iterable[int]
) -> Iterator[Results]:
    """Yield the results of each run on images."""
    for seed in seeds:
        drawn = split(pool, seed, degrees=degrees, counts=counts)
        parts = (drawn.train, drawn.validation, drawn.test)
        images = np.concatenate([part.images.double().numpy() for part in parts])
        pixels = images.reshape(len(images), -1)
        sides = {"pixels": pixels / pixels.sum(1, keepdims=True)}
        sides |= embedded(PointClouds.from_images(images), size)
        yield dict(results(sides, [part.labels.numpy() for part in parts], seed))


def drawn(
    textures: list[Array], counts: Counts, random: np.random.Generator
) -> tuple[list[Array], list[NDArray[np.int64]]]:
    """Draw patches for training, validation and testing, with their labels."""
    numbers = (counts.train, counts.validation, counts.test)
    orders = [random.permutation(len(each))[: sum(numbers)] for each in textures]
    borders = np.cumsum(numbers)[:-1]
    parts = [
        np.concatenate([each[chosen] for each, chosen in zip(textures, group, strict=True)])
        for group in zip(*(np.split(order, borders) for order in orders), strict=True)
    ]
    labels = [np.repeat(np.arange(len(textures)), count) for count in numbers]
    return parts, labels


def on_textures(light: str, seeds: Iterable[int]) -> Iterator[Results]:
    """Yield the results of each run on co-occurrence matrices."""
    textures = [patches(image, SIDE) for image in photographs()]
    for seed in seeds:
        random = np.random.default_rng(seed)
        parts, labels = drawn(textures, PATCHES, random)
        images = np.concatenate(parts)
        if light == "relit":
            images, _ = relit(images, random)
        matrices = cooccurrence(images, LEVELS)
        entries = matrices.reshape(len(matrices), -1)
        sides = {"histogram": entries, "hellinger": np.sqrt(entries)}
        yield dict(results(sides | embedded(PointClouds.from_images(matrices), SIZE), labels, seed))


def run(options: Options) -> list[Row]:
    """Return one row per set of images, side and kernel; data that are not at hand are left out."""
    if options.quick:
        return averaged("digits", on_images(digits(), 0, Counts(10, 5, 5), 10, range(1)))
    seeds = range(options.seeds)
    rows = averaged("digits", on_images(digits(), 0, DIGITS, SIZE, seeds))
    with suppress(OSError):
        pool = load("MNIST", options.data_dir)
        for degrees in (0, 15):
            each = on_images(pool, degrees, Counts(), SIZE, seeds)
            rows += averaged(f"MNIST {degrees}", each)
    with suppress(ImportError):
        rows += averaged("leaves", on_leaves(seeds))
    with suppress(ImportError):
        for light in ("photo", "relit"):
            rows += averaged(light, on_textures(light, seeds))
    return rows


if __name__ == "__main__":
    main(run)
