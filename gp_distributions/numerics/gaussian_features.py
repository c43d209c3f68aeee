r"""Features of the Gaussian kernel that are exact up to rounding, for points of few coordinates.

The trapezoidal rule for the Fourier integral of the kernel,

.. math::
    e^{-(x - y)^2 / 2} = \frac{h}{\sqrt{2 \pi}} \sum_{j = -\infty}^\infty e^{-(h j)^2 / 2}
    \cos(h j (x - y)),

has an error below :math:`10^{-16}` if :math:`2 \pi / h` exceeds the largest difference by 8.6. On the
interval of the points, few principal directions of its cosines and sines exceed rounding errors, so
features are rotated to these. Products over the coordinates are features of points, and means of these
are features of clouds.

Sources: Trefethen and Weideman 2014, section 5 (the rule); Greengard and Strain 1991 (sums of Gaussians
by expansions that are exact up to rounding).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

import numpy as np
import torch
from torch import Tensor

from gp_distributions.numerics.linear_algebra import recomputed
from gp_distributions.numerics.mean_embeddings import common_atoms
from gp_distributions.rows.clouds import Cloud, by_size, sizes
from gp_distributions.rows.tensors import is_tracked

# There are features for at most so many coordinates and for points at most so far from the middle of
# their range, and at most so many of them: of a cloud, and of all clouds together.
_COORDINATES, _FARTHEST, _FEATURES, _HELD = 4, 50.0, 20_000, 2**26
# Higher frequencies have no weight in double precision.
_HIGHEST = 8.6
# Features whose squares are smaller everywhere change no digit.
_NEGLIGIBLE = 1e-16
# Extents are rounded up to multiples of it, so that features are seldom made anew.
_STEP = 0.25
# Number of values to hold at a time.
_BLOCK = 2**18
# Time of a pair of points, and of a cosine, over that of a multiplication in a matrix product.
_PAIR, _COSINE = 20, 40
# So few pairs take less time than finding the features.
_FEWEST = 10**6


@dataclass(frozen=True, eq=False)
class _Axis:
    """Features of numbers in an interval.

    Attributes:
        frequencies: A ``K`` tensor.
        rotation: An ``r x 2 K`` tensor, from cosines and sines to features.
        largest: An ``r`` tensor, the largest square of each feature.
    """

    frequencies: Tensor
    rotation: Tensor
    largest: Tensor

    def features(self, numbers: Tensor) -> Tensor:
        """Return the ``r x n`` features of ``n`` numbers."""
        angles = torch.outer(self.frequencies.to(numbers), numbers)
        return self.rotation.to(numbers) @ torch.cat([angles.cos(), angles.sin()])


@functools.lru_cache(maxsize=64)
def _axis(extent: float) -> _Axis:
    """Return the features of numbers from ``-extent`` to ``extent``."""
    step = 2 * math.pi / (2 * extent + _HIGHEST)
    frequencies = step * np.arange(math.ceil(_HIGHEST / step) + 1)
    weights = step * math.sqrt(2 / math.pi) * np.exp(-(frequencies**2) / 2)
    weights[0] /= 2
    roots = np.sqrt(np.tile(weights, 2))
    count = 4 * len(roots)
    nodes = extent * np.cos(math.pi * (np.arange(count) + 0.5) / count)
    angles = np.outer(frequencies, nodes)
    waves = roots[:, None] * np.concatenate([np.cos(angles), np.sin(angles)])
    directions = np.linalg.svd(waves, full_matrices=False)[0].T
    squares = (directions @ waves) ** 2
    left_out = squares[::-1].cumsum(0)[::-1].max(1)  # by features from each one on
    kept = int((left_out > _NEGLIGIBLE).sum())
    parts = frequencies, directions[:kept] * roots, squares[:kept].max(1)
    return _Axis(*map(torch.from_numpy, parts))


@dataclass(frozen=True, eq=False)
class _Group:
    """Products of the features of some coordinates.

    Attributes:
        axes: The features of each coordinate.
        index: For each coordinate, which of its features each product has: a ``D`` tensor.
        largest: The largest square of each product, a ``D`` tensor.
    """

    axes: tuple[_Axis, ...]
    index: tuple[Tensor, ...]
    largest: Tensor

    @classmethod
    def of(cls, axes: Sequence[_Axis]) -> _Group:
        """Make the products that count."""
        index: tuple[Tensor, ...] = ()
        largest = torch.ones(1, dtype=torch.float64, device="cpu")
        for axis in axes:
            squares = torch.outer(largest, axis.largest)
            left, right = torch.nonzero(squares > _NEGLIGIBLE, as_tuple=True)
            index = *(each[left] for each in index), right
            largest = squares[left, right]
        return cls(tuple(axes), index, largest)

    def features(self, points: Tensor, factors: Tensor) -> Tensor:
        """Return the ``C x D x n`` products for a ``C x n x d`` tensor, times ``C x n`` factors."""
        product = factors.flatten().unsqueeze(0)
        for axis, index, numbers in zip(self.axes, self.index, points.unbind(-1), strict=True):
            features = axis.features(numbers.flatten())
            product = product * features.index_select(0, index.to(points.device))
        return product.unflatten(-1, factors.shape).movedim(0, 1)


@dataclass(frozen=True, eq=False)
class _Features:
    """Features of points in a box around zero.

    Attributes:
        first: Products of the features of the first half of the coordinates.
        second: Those of the other coordinates.
        kept: Which pairs of a product of the first half and one of the second count: an index.
    """

    first: _Group
    second: _Group
    kept: Tensor

    def embed(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return the ``batch_shape x D`` features of clouds, with memory for some atoms at a time."""
        groups = self.first, self.second
        widths = [axis.rotation.shape[-1] for group in groups for axis in group.axes]
        atoms = max(1, _BLOCK // max(*widths, *(len(group.largest) for group in groups)))
        clouds, order = by_size(points.flatten(0, -3), weights.flatten(0, -2), atoms)
        parts = [zip(x.split(atoms, -2), w.split(atoms, -1), strict=True) for x, w in clouds]
        sums = [
            functools.reduce(add, (recomputed(self._embed, *one) for one in part)) for part in parts
        ]
        features = torch.cat(sums)
        features = features if order is None else features[order]
        return features.unflatten(0, weights.shape[:-1])

    def _embed(self, points: Tensor, weights: Tensor) -> Tensor:
        half = len(self.first.axes)
        first = self.first.features(points[..., :half], torch.ones_like(weights))
        second = self.second.features(points[..., half:], weights)
        products = (first @ second.mT).flatten(-2)
        return products.index_select(-1, self.kept.to(points.device))

    def cost(self, atoms: float) -> float:
        """Return the time that so many atoms take, in multiplications."""
        waves = sum(
            axis.rotation.numel() + axis.rotation.shape[-1] * _COSINE
            for axis in (*self.first.axes, *self.second.axes)
        )
        return atoms * (waves + len(self.first.largest) * len(self.second.largest))


@functools.lru_cache(maxsize=64)
def _features(extents: tuple[float, ...]) -> _Features | None:
    """Return the features of points in a box, or ``None`` if there are too many."""
    axes = [_axis(extent) for extent in extents]
    half = (len(axes) + 1) // 2
    first, second = _Group.of(axes[:half]), _Group.of(axes[half:])
    if len(first.largest) * len(second.largest) > 50 * _FEATURES:
        return None
    squares = torch.outer(first.largest, second.largest).flatten()
    kept = torch.nonzero(squares > _NEGLIGIBLE).squeeze(-1)
    return _Features(first, second, kept) if len(kept) <= _FEATURES else None


def gaussian_features(one: Cloud, two: Cloud) -> tuple[Tensor, Tensor] | None:
    """Compute features whose inner products are those of mean embeddings, if that saves time.

    Distances between features are accurate for clouds that nearly coincide, too.

    Args:
        one: Atoms in units of the bandwidth, ``batch_shape x N x n x d``, and weights,
            ``batch_shape x N x n``.
        two: Atoms, ``batch_shape x M x m x d``, and weights; or ``one`` itself.

    Returns:
        A ``batch_shape x N x D`` and a ``batch_shape x M x D`` tensor, the same for the same clouds; or
        ``None`` if the kernel at pairs of atoms takes less time.
    """
    (x1, w1), (x2, w2), different = one, two, two is not one
    sizes1, sizes2 = sizes(w1).sum(-1).double(), sizes(w2).sum(-1).double()
    share = 1.0 if different else 0.5
    pairs = share * float((sizes1 * sizes2).sum())
    if x1.shape[-1] > _COORDINATES or pairs < _FEWEST:
        return None
    ends = [x.detach().flatten(0, -2).aminmax(dim=0) for x in (x1, x2)]
    low = torch.minimum(ends[0].min, ends[1].min)
    high = torch.maximum(ends[0].max, ends[1].max)
    extents = ((high - low) / 2).tolist()
    if not max(extents) <= _FARTHEST:
        return None
    features = _features(tuple(math.ceil(extent / _STEP) * _STEP for extent in extents))
    if features is None:
        return None
    count, centre = len(features.kept), (low + high) / 2
    atoms, clouds = float(sizes1.sum()), w1.shape[:-1].numel()
    products = share * clouds * w2.shape[-2] * count
    if different:
        atoms, clouds = atoms + float(sizes2.sum()), clouds + w2.shape[:-1].numel()
    if clouds * count > _HELD or features.cost(atoms) + products > _PAIR * pairs:
        return None
    if not is_tracked(x1, x2) and common_atoms(x1, x2) is not None:
        return None  # one kernel matrix takes less time
    first = features.embed(x1 - centre, w1)
    return first, features.embed(x2 - centre, w2) if different else first
