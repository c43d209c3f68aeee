r"""Do components, clusters and support vector machines work better on co-occurrence matrices as clouds?

Kolouri, Zou and Rohde 2016 describe a texture by its co-occurrence matrix, the distribution of the
grey levels of two neighbouring pixels, and compare kernels of the sliced Wasserstein distance with
linear kernels and Gaussian kernels of matrices. Their textures, of the University of Illinois, are not
carried by a package, so their figures have no counterpart here. scikit-image carries three textures of
512 x 512 pixels, brick, grass and gravel; only its files are read. Each is cut into 256 patches of 32 x
32 pixels. A run draws 40 patches per texture for training, 40 to select hyperparameters and 120 for
testing; patches of one part lie beside patches of another. The co-occurrence matrix of a patch counts
pairs of horizontal neighbours, in both orders, by 32 grey levels each.

The patches are as photographed (``photo``), or each is ``relit``: a grey level :math:`v` in [0, 1]
becomes :math:`a v + (1 - a) b`, with :math:`a` uniform on [1/2, 1] and :math:`b` on [0, 1].

Sides:

- ``histogram``: the entries of the matrix;
- ``hellinger``: their square roots;
- ``sw2``: the embedding of the sliced Wasserstein distance of order two with 50 slices and 50
  quantiles, where each entry is an atom at its pair of grey levels;
- ``sw2 centred``: the same for clouds shifted to mean zero.

Kernels and columns are those of ``image_embeddings``: the share of variance in the first
k principal components, the agreement of k-means and of spectral clustering with the textures, here with
three clusters, and the accuracy of a support vector machine, means over runs.

In the paper, the template of the kernels is the average distribution of the data set, a mixture; here
features are centred at their mean in the Hilbert space, which differs for the polynomial kernel only.
The paper holds out each fifth of a class in turn and repeats this, and k-means, 100 times.

The paper reports that SW kernels need fewer components, find better clusters and classify better. On
these textures they classify better than kernels of the entries, and relit patches, which move the
matrix, make the gap wide. Square roots of the entries are a stronger peer than the entries: as
photographed, they cluster and classify as well as SW2. Components say little by themselves: those of
``sw2`` on relit patches have most variance in two, which the light moves, and the worst clusters.

    python -m benchmarks.papers.textures [--quick] [--seeds 5]

Needs the files of scikit-image (``pip install --no-deps scikit-image``). With ``--quick``, the two
photographs of scikit-learn serve instead.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from matplotlib.image import imread
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from benchmarks.harness import Options, Row, main, progress
from benchmarks.papers.image_embeddings import averaged, results
from benchmarks.prediction.digits_machines import embedded
from gp_distributions import PointClouds

TEXTURES = ("brick", "grass", "gravel")
SIDE, LEVELS = 32, 32
TRAIN, VALIDATION, TEST = 40, 40, 120

Array = NDArray[np.float64]


def photographs(*, quick: bool) -> list[Array]:
    """Return one image per texture, with grey levels in [0, 1]."""
    if quick:
        return [image.mean(-1) / 255 for image in load_sample_images().images]
    spec = find_spec("skimage")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(
            "Expected the files of scikit-image. Run `pip install --no-deps scikit-image`."
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return [imread(folder / f"{name}.png").astype(np.float64) for name in TEXTURES]


def patches(image: Array, side: int) -> Array:
    """Cut an image into ``N x side x side`` squares."""
    rows, columns = (size // side for size in image.shape)
    blocks = image[: rows * side, : columns * side].reshape(rows, side, columns, side)
    return blocks.swapaxes(1, 2).reshape(-1, side, side)


def relit(images: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """Change the contrast and the brightness of each image at random; return the contrasts too."""
    shape = (len(images), 1, 1)
    contrast, light = random.uniform(0.5, 1, shape), random.uniform(0, 1, shape)
    return contrast * images + (1 - contrast) * light, contrast


def cooccurrence(images: Array, levels: int) -> Array:
    """Return the co-occurrence matrices of horizontal neighbours, ``N x levels x levels``, of sum 1."""
    grey = np.minimum((images * levels).astype(np.int64), levels - 1)
    left, right = (part.reshape(len(images), -1) for part in (grey[:, :, :-1], grey[:, :, 1:]))
    index = np.arange(len(images))[:, None]
    counts = np.zeros((len(images), levels, levels))
    np.add.at(counts, (index, left, right), 1.0)
    counts += counts.swapaxes(1, 2)
    return counts / counts.sum((1, 2), keepdims=True)


def drawn(
    textures: list[Array], counts: tuple[int, int, int], random: np.random.Generator
) -> tuple[list[Array], list[NDArray[np.int64]]]:
    """Draw patches for training, validation and testing, with their labels."""
    orders = [random.permutation(len(each))[: sum(counts)] for each in textures]
    borders = np.cumsum(counts)[:-1]
    parts = [
        np.concatenate([each[chosen] for each, chosen in zip(textures, group, strict=True)])
        for group in zip(*(np.split(order, borders) for order in orders), strict=True)
    ]
    labels = [np.repeat(np.arange(len(textures)), count) for count in counts]
    return parts, labels


def run(options: Options) -> list[Row]:
    """Return one row per light, side and kernel."""
    counts, size = ((8, 4, 4), 10) if options.quick else ((TRAIN, VALIDATION, TEST), 50)
    textures = [patches(image, SIDE) for image in photographs(quick=options.quick)]
    rows: list[Row] = []
    for light in ("photo", "relit"):
        each = []
        for seed in progress(range(options.seeds), light):
            random = np.random.default_rng(seed)
            parts, labels = drawn(textures, counts, random)
            images = np.concatenate(parts)
            if light == "relit":
                images, _ = relit(images, random)
            matrices = cooccurrence(images, LEVELS)
            entries = matrices.reshape(len(matrices), -1)
            sides = {"histogram": entries, "hellinger": np.sqrt(entries)}
            each.append(
                dict(
                    results(sides | embedded(PointClouds.from_images(matrices), size), labels, seed)
                )
            )
        rows += averaged(light, each)
    return rows


if __name__ == "__main__":
    main(run)
