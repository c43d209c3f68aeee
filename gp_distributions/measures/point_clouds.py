"""Weighted point clouds: bags, images, curves and meshes as probability measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures._container import Container, counted_sizes
from gp_distributions.measures._curves import read_curves
from gp_distributions.measures._dense import read_arrays, read_rows
from gp_distributions.measures._frames import Frame, read_frame
from gp_distributions.measures._images import read_images
from gp_distributions.measures._meshes import read_meshes
from gp_distributions.measures._ragged import read_bags
from gp_distributions.measures._sampling import draw_indices, seeded
from gp_distributions.measures._validation import equal_weights
from gp_distributions.measures.arrays import Array, Data, integer, point_array
from gp_distributions.measures.normalization import pooled_centre_and_scale
from gp_distributions.rows.clouds import join_rows, pad_rows


@dataclass(frozen=True, init=False, eq=False, repr=False)
class PointClouds(Container):
    """Weighted point clouds: the probability measures ``sum_i w_i delta(x_i)``, one for each bag.

    The data are checked once, here, and frozen. Arrays are copied, to the CPU; a tensor of the
    right dtype is kept as it is, and gradients flow through points and weights. Single precision is
    kept, with a warning; integers, booleans, half precision and mixtures become double. Bags lie
    along the last batch axis: ``len(clouds)`` is its length, and ``clouds[index]`` selects from it.

    Args:
        points: A ``batch_shape x n x d`` tensor or array of atoms.
        weights: A ``batch_shape x n`` tensor or array of weights >= 0, which are divided by their sum
            over each bag. Default: equal weights.

    Attributes:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights that sum to one over each bag. Atoms of
            weight zero are padding, which changes no result and stays when clouds are selected.
        labels: An array of shape ``batch_shape``, the names that ``from_frame`` read; None elsewhere.

    Raises:
        ValueError: If a coordinate is not finite, a weight is negative or not finite, the weights
            of a bag are all zero, or shapes or dtypes do not fit.
    """

    _noun: ClassVar[str] = "cloud"
    _axes: ClassVar[dict[str, int]] = {"points": 2, "weights": 1}

    points: Tensor
    weights: Tensor

    def __init__(self, points: Data, weights: Data | None = None) -> None:
        self._fill(*read_arrays(points, weights))
        self._warn_if_single(stacklevel=3)

    @classmethod
    def from_list(
        cls, bags: Iterable[Data | PointClouds], weights: Iterable[Data] | None = None
    ) -> PointClouds:
        """Read bags of any sizes, padded to the largest with atoms of weight zero at the origin.

        Args:
            bags: For each bag, an ``n_i x d`` tensor or array, or a single cloud such as ``clouds[0]``,
                which keeps its weights, but not its label.
            weights: For each bag, a tensor or array of ``n_i`` weights >= 0. Default: equal weights.

        Returns:
            The clouds, in order.

        Raises:
            ValueError: As the class does, and if there is no bag, a bag is empty, or dimensions or
                lengths differ; or if a bag is several clouds, or a cloud and weights are given.
        """
        bags = list(bags)
        arrays = [bag for bag in bags if not isinstance(bag, PointClouds)]
        if len(arrays) == len(bags):
            return cls._read(*read_bags(arrays, weights))
        return cls._read(*read_bags(*_opened(bags, weights)))

    @classmethod
    def from_frame(
        cls, frame: Frame, *, bag: str, columns: str | Sequence[str], weight: str | None = None
    ) -> PointClouds:
        """Read a long table with one row for each atom.

        Args:
            frame: A data frame, of pandas or like it: ``frame.columns`` and
                ``frame[name].to_numpy()`` are used.
            bag: The column that names the bag of each row, in values of any hashable type. The
                names become ``labels``.
            columns: The column or columns of coordinates.
            weight: The column of weights >= 0. Default: equal weights.

        Returns:
            The clouds, in order of first appearance; rows keep their order within each.

        Raises:
            ValueError: As the class does, and if the frame is empty, a column is missing or not
                numeric, or a row names no bag.
        """
        points, weights, labels = read_frame(frame, bag, columns, weight)
        return cls._read(points, weights, labels=labels)

    @classmethod
    def from_images(cls, images: Data) -> PointClouds:
        """Read images as intensities on the grid of their pixels, which all of them share.

        The centres of the pixels fill the square [-1, 1]^2, corners included: the first coordinate
        grows to the right, the second upward, so the first pixel of the first row is at (-1, 1).
        An axis of one pixel is at 0.

        Args:
            images: A ``batch_shape x H x W`` tensor or array of intensities >= 0, without an axis of
                colours. Several batch axes before images higher than their width of 3 or 4 are taken
                for such an axis.

        Returns:
            Clouds of ``H*W`` atoms in two dimensions, row after row of pixels.

        Raises:
            ValueError: If an intensity is negative or not finite, an image is all zero, or the last
                axis looks like one of colours.
        """
        return cls._read(*read_images(images))

    @classmethod
    def from_curves(
        cls, curves: Iterable[Data], closed: bool = True, atoms: int | None = None
    ) -> PointClouds:
        """Read polygonal curves, with the arc length that each vertex stands for as its weight.

        The weight of a vertex is half of the length of its two segments, so that uneven spacing of
        the vertices does not distort the measure.

        Args:
            curves: For each curve, an ``n_i x d`` tensor or array of vertices in order.
            closed: Whether a segment leads from the last vertex to the first. The first vertex may,
                but need not, be repeated at the end.
            atoms: Take so many points at equal arc length instead, of equal weights, from the first
                vertex on: at ``k L / atoms`` on a closed curve of length ``L``, at ``k L / (atoms - 1)``
                on an open one, both ends included. Default: the vertices.

        Returns:
            The clouds, in order.

        Raises:
            ValueError: As ``from_list``, and if a curve has fewer than two vertices or no length.
        """
        return cls._read(*read_curves(curves, closed=closed, atoms=atoms))

    @classmethod
    def from_meshes(
        cls,
        meshes: Iterable[tuple[Data, Data]],
        atoms: int | None = None,
        seed: int | np.random.Generator = 0,
    ) -> PointClouds:
        """Read triangle meshes, with the area that each vertex stands for as its weight.

        The weight of a vertex is a third of the area of its triangles; a vertex of none has none.

        Args:
            meshes: For each mesh, an ``n_i x d`` tensor or array of vertices, ``d >= 2``, and an
                ``f_i x 3`` one of integers: the vertices of each triangle, counted from 0.
            atoms: Draw so many points uniformly from the area instead, of equal weights. Default:
                the vertices.
            seed: The seed of the draws, or a generator to draw from.

        Returns:
            The clouds, in order.

        Raises:
            ValueError: As ``from_list``, and if faces are no triangles, name a vertex that does not
                exist, or have no area.
        """
        return cls._read(*read_meshes(meshes, atoms=atoms, seed=seed))

    @classmethod
    def unpack(cls, rows: Data, dim: int) -> PointClouds:
        """Read rows back: the inverse of ``pack``, but for the labels, which rows do not hold.

        Args:
            rows: A ``batch_shape x m*(d+1)`` tensor or array.
            dim: The dimension ``d`` of the atoms.

        Returns:
            The clouds.

        Raises:
            ValueError: As the class does, and if the width of the rows is no multiple of ``d + 1``.
        """
        return cls._read(*read_rows(rows, dim))

    def pack(self, atoms: int | None = None) -> Tensor:
        """Lay the clouds out as rows: atoms in turn, each its coordinates and then its weight.

        Args:
            atoms: The number ``m`` of atoms in a row, which gives several sets of clouds one width.
                Default: the stored number. A smaller one cuts off padding, never an atom.

        Returns:
            A ``batch_shape x m*(d+1)`` tensor.

        Raises:
            ValueError: If ``atoms`` is too small for the largest cloud.
        """
        count = self.points.shape[-2] if atoms is None else integer(atoms, "atoms")
        beyond = (self.weights[..., count:] > 0).nonzero()[:, -1]
        if len(beyond):
            needed = count + 1 + int(beyond.max())
            raise ValueError(f"Expected atoms >= {needed}, for the largest cloud, got {count}.")
        rows = join_rows(self.points[..., :count, :], self.weights[..., :count])
        return pad_rows(rows, count * (self.dim + 1))

    def resample(self, n: int, seed: int | torch.Generator = 0) -> PointClouds:
        """Draw atoms of each cloud by weight, with replacement.

        Args:
            n: The number of draws.
            seed: The seed of the draws, or a generator, on the device of the clouds, to draw from.

        Returns:
            Clouds of ``n`` atoms of weight ``1 / n``.

        Raises:
            ValueError: If ``n`` is no integer >= 1.
        """
        count = integer(n, "n")
        drawn = draw_indices(self.weights, count, seeded(seed, self.device)).unsqueeze(-1)
        points = self.points.gather(-2, drawn.expand(*self.batch_shape, count, self.dim))
        return self._unchecked(points, equal_weights(points), labels=self.labels)

    def normalize(self, like: PointClouds | None = None, scale: Data | None = None) -> PointClouds:
        """Centre and scale each coordinate, alike in all atoms: ``(x - centre) / scale``.

        The centre is the mean over the clouds of their means, ``sum_i w_i x_i``; the default scale is
        the root of the mean over the clouds of ``sum_i w_i (x_i - centre)^2``. Each cloud counts
        once, whatever its number of atoms.

        Args:
            like: The clouds that give centre and scale: the training data, when test data are
                normalised. Default: these clouds.
            scale: A scale for all coordinates, or ``d`` scales, in their units, in place of the
                default. The centre is subtracted all the same.

        Returns:
            The clouds, with the same weights and labels.

        Raises:
            TypeError: If ``like`` is something else.
            ValueError: If the dimensions differ, a scale is not positive, or a coordinate has one
                value only and no scale is given.
        """
        return self._scaled(*self._source(like)._centre_and_scale(scale))

    def _centre_and_scale(self, scale: Data | None) -> tuple[Tensor, Tensor]:
        spread = torch.zeros_like(self.points)
        return pooled_centre_and_scale(self.points, spread, self.weights, scale)

    def _scaled(self, centre: Tensor, scale: Tensor) -> PointClouds:
        return self._unchecked((self.points - centre) / scale, self.weights, labels=self.labels)

    @property
    def sizes(self) -> Tensor:
        """The number of atoms of positive weight of each cloud: a ``batch_shape`` integer tensor."""
        return (self.weights > 0).sum(-1)

    def _details(self) -> list[str]:
        return [counted_sizes(self.sizes, "atom")]


def _opened(bags: Sequence[Any], weights: Any) -> tuple[list[Array], list[Array]]:
    """Atoms and weights of bags, some of which are single clouds; equal weights for the others."""
    atoms: list[Array] = []
    masses: list[Array] = []
    for i, bag in enumerate(bags):
        if not isinstance(bag, PointClouds):
            atoms.append(point_array(bag, f"Bag {i}", "(n, d)"))
            masses.append(np.ones(len(atoms[-1]), dtype=np.float32))  # which decides on no dtype
        elif bag.batch_shape or weights is not None:
            expected = "a single cloud" if bag.batch_shape else "no weights beside clouds"
            raise ValueError(
                f"Bag {i}: expected {expected}, got {bag}. Give the arrays of its atoms."
            )
        else:
            atoms.append(bag.points)
            masses.append(bag.weights)
    return atoms, masses
