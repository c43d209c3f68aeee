"""Patches of photographs of textures, and their co-occurrence matrices.

scikit-image carries three textures of 512 x 512 pixels, brick, grass and gravel; only its files are
read.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from matplotlib.image import imread
from numpy.typing import NDArray

TEXTURES = ("brick", "grass", "gravel")
SIDE = 32

Array = NDArray[np.float64]


def photographs() -> list[Array]:
    """Return one image per texture, with grey levels in [0, 1].

    Raises:
        ModuleNotFoundError: If the files of scikit-image are not installed.
    """
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
