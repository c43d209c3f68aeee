"""Images as weighted clouds: data, random motions, splits, and selection on validation images.

The protocol is that of Meunier, Pontil and Ciliberto (2022, section 6) on MNIST and Fashion-MNIST: 1000
images for training, 300 to select hyperparameters and 500 for testing, with equally many per class. The
images are unchanged, 28 x 28 pixels, or moved. Moved images, for training and testing alike, are rotated
about the centre by an angle drawn uniformly from zero to the given maximum in either direction (bilinear
interpolation), cropped to the bounding box, and placed at random in 34 x 34 pixels. If the box does not
fit, another angle is drawn. The paper prints neither the range of translations nor that images are
cropped; the authors' code does so (``get_contour``, ``random_translation``, ``apply_variation``). Their
code scales 28 pixels to [-1, 1], so that those of 34 reach 1.44, whereas the text says [-1, 1]^2 for all
(``as_clouds`` has both).

The images of each class are shuffled once and divided 13 : 5 into a part for training and validation and
a part for testing, so that no test image of one run is used for training or validation in another. Runs
0, 1, ... take disjoint sections until no unused images are left, and then draw at random. The 70 000
images of OpenML give disjoint runs. With smaller files, 9599 images of MNIST give five runs that are
disjoint except for the fives of the last; with 3583 images of Fashion-MNIST, all runs after the first
overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import fetch_openml, load_digits
from torch import Tensor
from torch.nn import functional

from gp_distributions import PointClouds
from gp_distributions.models.kernel_ridge import ridge_weights

# File and OpenML name of each data set.
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
        """Return all images rotated by random angles and placed at random."""
        return Images(move(self.images, degrees, seed=seed), self.labels)


@dataclass(frozen=True)
class Counts:
    """Numbers of images per class in a run."""

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
    """Load the images of a data set.

    Args:
        name: ``"MNIST"`` or ``"Fashion"``.
        data_dir: Folder with ``mnist.npz`` and ``fashion_mnist.npz``, each with arrays ``images``, uint8
            ``(N, 28, 28)``, and ``labels``, uint8 ``(N,)``. Default: fetch all 70 000 images from
            OpenML and keep them in scikit-learn's data folder.

    Raises:
        FileNotFoundError: If the file does not exist.
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
                "Pass its folder as --data-dir, or omit --data-dir to fetch the images from OpenML."
            )
        with np.load(file) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    return Images(torch.from_numpy(images / 255.0), torch.from_numpy(labels.astype(np.int64)))


def digits() -> Images:
    """Return scikit-learn's digits, 8 x 8 pixels."""
    data = load_digits()
    return Images(torch.from_numpy(data.images / 16), torch.from_numpy(data.target))


def split(pool: Images, seed: int, *, degrees: float = 0, counts: Counts = Counts()) -> Run:
    """Select the images of one run.

    Args:
        pool: All images.
        seed: Number of the run.
        degrees: Largest angle by which images are rotated before they are placed at random; 0 leaves
            images unchanged.
        counts: Numbers of images per class.

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
    """Return the section of a run, or random members if it would exceed the end."""
    if count > len(members):
        raise ValueError(f"Expected at least {count} images of each class, got {len(members)}.")
    stretch = members[run * count : (run + 1) * count]
    return stretch if len(stretch) == count else members[_permutation(len(members), seed)[:count]]


def move(images: Tensor, degrees: float, *, seed: int, size: int = SIZE) -> Tensor:
    """Rotate images by random angles, crop them to their bounding boxes and place them at random.

    Args:
        images: A ``N x H x W`` tensor.
        degrees: Largest angle in either direction.
        seed: Random seed for angles and positions.
        size: Side of the square in which images are placed, in pixels.

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
    """Rotate square images about their centres."""
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    maps = torch.stack([cos, -sin, zero, sin, cos, zero], dim=-1).unflatten(-1, (2, 3))
    grid = functional.affine_grid(maps, [len(images), 1, *images.shape[1:]], align_corners=False)
    return functional.grid_sample(images.unsqueeze(1), grid, align_corners=False).squeeze(1)


def _cut(image: Tensor) -> Tensor:
    """Crop an image to the bounding box of its non-zero pixels."""
    rows, columns = (image.any(axis).nonzero().flatten() for axis in (1, 0))
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def as_clouds(images: Tensor, *, fill: bool = False) -> PointClouds:
    """Return the non-zero pixels as atoms, weighted by intensity.

    Args:
        images: A ``N x H x W`` tensor.
        fill: Whether images of every size fill [-1, 1]^2, as in the text of the paper. Otherwise 28
            pixels do, as in its code, so that what is in an image has the same size in a larger one.
    """
    return _weighted(images, images.unsqueeze(-1)[..., :0], fill=fill)


def as_edges(images: Tensor, scale: float) -> PointClouds:
    r"""Return images as measures on positions and directions of their edges.

    A pixel with the gradient :math:`r (\cos \varphi, \sin \varphi)` (Sobel) is an atom
    :math:`(x, y, s \cos \varphi, s \sin \varphi)` of weight :math:`r`.

    Args:
        images: A ``N x H x W`` tensor.
        scale: Length :math:`s` of directions.
    """
    smooth = torch.tensor([1.0, 2.0, 1.0]).to(images)
    slope = torch.tensor([-1.0, 0.0, 1.0]).to(images)  # to the right; rows count downwards
    # The margin makes the edges of an image independent of its position.
    padded = functional.pad(images, [2] * 4).unsqueeze(1)
    dx, dy = (
        functional.conv2d(padded, torch.outer(a, b)[None, None]).squeeze(1)
        for a, b in ((smooth, slope), (-slope, smooth))
    )
    norm = torch.hypot(dx, dy)
    directions = torch.stack([dx, dy], dim=-1) / norm.clamp_min(1e-12).unsqueeze(-1)
    return _weighted(norm, scale * directions)


def _weighted(weights: Tensor, more: Tensor, *, fill: bool = False) -> PointClouds:
    """Return pixel positions, scaled so that 28 or all pixels span [-1, 1], with further coordinates."""
    sides = [(n - 1) / 2 if fill else 13.5 for n in weights.shape[-2:]]
    y, x = (
        torch.arange(n).to(weights) / side - 1
        for n, side in zip(weights.shape[-2:], sides, strict=True)
    )
    grid = torch.stack(torch.meshgrid(x, -y, indexing="xy"), dim=-1)
    masks = weights > 1e-6
    points = [torch.cat([grid[m], e[m]], -1) for m, e in zip(masks, more, strict=True)]
    return PointClouds.from_list(
        points, weights=[w[m] for w, m in zip(weights, masks, strict=True)]
    )


@dataclass(frozen=True)
class Choice:
    """The distance, lengthscale and ridge with the best validation accuracy.

    Attributes:
        name: Name of the distance.
        lengthscale: Lengthscale in units of the median distance between training images.
        ridge: Regularisation times the number of training images.
        validation: Accuracy on validation images.
        test: Accuracy on test images.
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
    """Select kernel ridge regression on indicators, with a Gaussian profile, on validation images.

    Ties go to the earliest distance, the longest lengthscale and the largest ridge.

    Args:
        squared: Squared distances between all images of a run for each name: training images first,
            then validation images, then test images.
        labels: Labels of all images.
        sizes: Numbers of training and validation images.
        lengthscales: Candidates, in units of the median distance between training images.
        ridges: Candidate regularisations.

    Returns:
        The choice, which does not depend on test images.
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
