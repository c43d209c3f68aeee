"""Images as weighted clouds: data, random motions, splits, and choices made on validation images.

The protocol of Meunier, Pontil and Ciliberto (2022, section 6) on MNIST and Fashion-MNIST: 1000
images to train, 300 to choose hyperparameters, 500 to test, as many of each class. Either as they are,
28 x 28 pixels, or moved: every image, to train or to test, is turned about its centre by an angle drawn
uniformly up to the given one on either side (bilinear interpolation), cut to its bounding box, and put
down anywhere in 34 x 34 pixels; an angle at which the box does not fit is drawn again.

The images of a class are shuffled once and parted 13 : 5 into those to train and validate and those to
test, so that no image is a test image in one run and seen before the test in another. Runs 0, 1, ...
take disjoint stretches while these last and then draw at random. The 70 000 images of OpenML give
disjoint runs. Of smaller files, 9599 images of MNIST give five runs, disjoint but for the fives of the
last; of 3583 images of Fashion-MNIST only the first is disjoint, the others are resamples that overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import fetch_openml
from torch import Tensor
from torch.nn import functional

from gp_distributions import PointClouds
from gp_distributions.models.kernel_ridge import ridge_weights

# For each data set its file, and its name on OpenML.
SOURCES = {
    "MNIST": ("mnist.npz", "mnist_784"),
    "Fashion": ("fashion_mnist.npz", "Fashion-MNIST"),
}
SIZE = 34


@dataclass(frozen=True)
class Images:
    """Images with intensities in [0, 1], ``N x H x W``, and their labels."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> Images:
        return Images(self.images[index], self.labels[index])

    def moved(self, degrees: float, *, seed: int) -> Images:
        """All images turned by random angles and put down at random places."""
        return Images(move(self.images, degrees, seed=seed), self.labels)


@dataclass(frozen=True)
class Counts:
    """Images of one class in a run."""

    train: int = 100
    validation: int = 30
    test: int = 50


@dataclass(frozen=True)
class Run:
    """One split."""

    train: Images
    validation: Images
    test: Images


def load(name: str, data_dir: Path | None = None) -> Images:
    """The images of a data set.

    Args:
        name: ``"MNIST"`` or ``"Fashion"``.
        data_dir: The folder of ``mnist.npz`` and ``fashion_mnist.npz``, each with arrays ``images``,
            uint8 ``(N, 28, 28)``, and ``labels``, uint8 ``(N,)``; None: all 70 000 are fetched from
            OpenML and kept in scikit-learn's data folder.

    Raises:
        FileNotFoundError: If the file is not there.
        OSError: If OpenML cannot be reached.
    """
    file_name, public_name = SOURCES[name]
    if data_dir is None:
        images, labels = fetch_openml(public_name, version=1, as_frame=False, return_X_y=True)
        images = images.reshape(-1, 28, 28)
    else:
        file = data_dir / file_name
        if not file.exists():
            raise FileNotFoundError(
                f"Expected {file} with arrays images, uint8 (N, 28, 28), and labels, uint8 (N,). "
                "Give its folder with --data-dir, or no folder, to fetch the images from OpenML."
            )
        with np.load(file) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    return Images(torch.from_numpy(images / 255.0), torch.from_numpy(labels.astype(np.int64)))


def split(pool: Images, seed: int, *, degrees: float = 0, counts: Counts = Counts()) -> Run:
    """The images of one run.

    Args:
        pool: All images.
        seed: The number of the run.
        degrees: The largest angle by which images are turned before they are put down at random
            places; 0 for images as they are.
        counts: Images of each class.

    Raises:
        ValueError: If there are too few images of a class.
    """
    parts: list[list[Tensor]] = [[], [], []]
    before_test = counts.train + counts.validation
    for label in pool.labels.unique():
        members = (pool.labels == label).nonzero().flatten()
        members = members[_permutation(len(members), [int(label)])]
        border = len(members) * before_test // (before_test + counts.test)
        known = _stretch(members[:border], before_test, seed, [int(label), seed])
        parts[0].append(known[: counts.train])
        parts[1].append(known[counts.train :])
        parts[2].append(_stretch(members[border:], counts.test, seed, [int(label), seed, 1]))
    drawn = [pool[torch.cat(part)] for part in parts]
    if degrees:
        drawn = [part.moved(degrees, seed=3 * seed + i) for i, part in enumerate(drawn)]
    return Run(*drawn)


def _permutation(size: int, seed: list[int]) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).permutation(size))


def _stretch(members: Tensor, count: int, run: int, seed: list[int]) -> Tensor:
    """The stretch of a run, or members drawn at random where it would go beyond the end."""
    if count > len(members):
        raise ValueError(f"Expected at least {count} images of each class, got {len(members)}.")
    stretch = members[run * count : (run + 1) * count]
    return stretch if len(stretch) == count else members[_permutation(len(members), seed)[:count]]


def move(images: Tensor, degrees: float, *, seed: int, size: int = SIZE) -> Tensor:
    """Images turned by random angles, cut to their bounding boxes and put down at random places.

    Args:
        images: A ``N x H x W`` tensor.
        degrees: The largest angle, on either side.
        seed: Of angles and places.
        size: Pixels of the side of the square in which images are put down.

    Returns:
        A ``N x size x size`` tensor.
    """
    generator = torch.Generator().manual_seed(seed)
    out = images.new_zeros(len(images), size, size)
    left = torch.arange(len(images))
    border = max(images.shape[-2:]) // 2
    while len(left):
        angles = math.radians(degrees) * (2 * torch.rand(len(left), generator=generator) - 1)
        turned = _turn(functional.pad(images[left], [border] * 4), angles.to(images))
        fits = torch.zeros(len(left), dtype=torch.bool)
        for i, image in enumerate(turned):
            box = _cut(image)
            room = [size - side for side in box.shape]
            if min(room) >= 0:
                y, x = (int(torch.randint(r + 1, (), generator=generator)) for r in room)
                out[left[i], y : y + box.shape[0], x : x + box.shape[1]] = box
                fits[i] = True
        left = left[~fits]
    return out


def _turn(images: Tensor, angles: Tensor) -> Tensor:
    """Square images turned about their centres."""
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    maps = torch.stack([cos, -sin, zero, sin, cos, zero], dim=-1).unflatten(-1, (2, 3))
    grid = functional.affine_grid(maps, [len(images), 1, *images.shape[1:]], align_corners=False)
    return functional.grid_sample(images.unsqueeze(1), grid, align_corners=False).squeeze(1)


def _cut(image: Tensor) -> Tensor:
    """An image within the bounding box of what is not zero."""
    rows, columns = (image.any(axis).nonzero().flatten() for axis in (1, 0))
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def as_clouds(images: Tensor) -> PointClouds:
    """Pixels that are not zero, weighted by intensity."""
    return _weighted(images, images.unsqueeze(-1)[..., :0])


def as_edges(images: Tensor, scale: float) -> PointClouds:
    r"""Images as measures on places and directions of their edges.

    A pixel with the gradient :math:`r (\cos \varphi, \sin \varphi)` (Sobel) is an atom
    :math:`(x, y, s \cos \varphi, s \sin \varphi)` of weight :math:`r`.

    Args:
        images: A ``N x H x W`` tensor.
        scale: The length :math:`s` of directions.
    """
    smooth = torch.tensor([1.0, 2.0, 1.0]).to(images)
    slope = torch.tensor([-1.0, 0.0, 1.0]).to(images)  # to the right; rows count downwards
    # With a margin, so that an image has the same edges wherever it lies.
    padded = functional.pad(images, [2] * 4).unsqueeze(1)
    dx, dy = (
        functional.conv2d(padded, torch.outer(a, b)[None, None]).squeeze(1)
        for a, b in ((smooth, slope), (-slope, smooth))
    )
    norm = torch.hypot(dx, dy)
    directions = torch.stack([dx, dy], dim=-1) / norm.clamp_min(1e-12).unsqueeze(-1)
    return _weighted(norm, scale * directions)


def _weighted(weights: Tensor, more: Tensor) -> PointClouds:
    """Places of pixels, 28 pixels having the length 2 of [-1, 1], with further coordinates."""
    y, x = (torch.arange(n).to(weights) / 13.5 - 1 for n in weights.shape[-2:])
    grid = torch.stack(torch.meshgrid(x, -y, indexing="xy"), dim=-1)
    masks = weights > 1e-6
    points = [torch.cat([grid[m], e[m]], -1) for m, e in zip(masks, more, strict=True)]
    return PointClouds.from_list(
        points, weights=[w[m] for w, m in zip(weights, masks, strict=True)]
    )


@dataclass(frozen=True)
class Choice:
    """What did best on the validation images: a distance, a lengthscale and a ridge.

    Attributes:
        name: Of the distance.
        lengthscale: In units of the median distance of training images.
        ridge: The regularisation, times the number of training images.
        validation: The accuracy on validation images.
        test: The accuracy on test images.
    """

    name: str
    lengthscale: float
    ridge: float
    validation: float
    test: float


def choose(
    squared: Mapping[str, Tensor],
    labels: Tensor,
    sizes: tuple[int, int],
    *,
    lengthscales: Sequence[float] = (0.5, 1.0, 2.0),
    ridges: Sequence[float] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
) -> Choice:
    """Kernel ridge regression on indicators with a Gaussian profile, chosen on validation images.

    Of equals the first is taken: the earliest distance, the longest lengthscale, the largest ridge.

    Args:
        squared: For each name, squared distances of all images of a run to each other, those to train
            first, then those to validate, then those to test.
        labels: The labels of all images.
        sizes: How many train and how many validate.
        lengthscales: Those tried, in units of the median distance of training images.
        ridges: The regularisations tried.

    Returns:
        The choice. Test images have no part in it.
    """
    train, known = sizes[0], sum(sizes)
    best: Choice | None = None
    for name, matrix in squared.items():
        to_train = matrix[:, :train]
        median = to_train[:train].median()
        for lengthscale in sorted(lengthscales, reverse=True):
            covariance = (-to_train / (2 * lengthscale**2 * median)).exp()
            for ridge in sorted(ridges, reverse=True):
                weights, _ = ridge_weights(covariance[:train], labels[:train], ridge)
                right = (covariance[train:] @ weights).argmax(-1) == labels[train:]
                validation, test = (
                    float(part.double().mean())
                    for part in right.split([sizes[1], len(labels) - known])
                )
                if best is None or validation > best.validation:
                    best = Choice(name, lengthscale, ridge, validation, test)
    assert best is not None
    return best


def calibration(probabilities: Tensor, labels: Tensor, *, bins: int = 10) -> tuple[float, float]:
    """The mean negative log probability of the labels, and the expected calibration error.

    Args:
        probabilities: A ``N x C`` tensor.
        labels: ``N`` columns.
        bins: Equal bins of the largest probability, over which its mean is held against accuracy.
    """
    at_label = probabilities.gather(-1, labels.unsqueeze(-1))
    confidence, guess = probabilities.max(-1)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = confidence - (guess == labels).to(confidence)
    error = torch.zeros(bins).to(gaps).index_add(0, index, gaps).abs().sum() / len(labels)
    return -float(at_label.log().mean()), float(error)
