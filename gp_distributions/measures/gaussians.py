"""Gaussians as inputs: probability measures that are given by a mean and a covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gp_distributions.measures._container import Container
from gp_distributions.measures._covariances import weighted_moments
from gp_distributions.measures._gaussian_arrays import read_gaussian_rows, read_gaussians
from gp_distributions.measures.arrays import Data
from gp_distributions.measures.gaussian_mixtures import GaussianMixtures
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.gaussians import join_gaussians


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Gaussians(Container):
    """Gaussian probability measures ``N(m, S)``.

    The data are checked once, here, and frozen. Arrays are copied, to the CPU; tensors keep their
    device, and gradients flow through both. Single precision is kept, with a warning. Gaussians lie
    along the last batch axis: ``len(gaussians)`` is its length, and ``gaussians[index]`` selects from
    it.

    Args:
        mean: A ``batch_shape x d`` tensor or array.
        covariance: A ``batch_shape x d x d`` tensor or array. Asymmetry within rounding is accepted,
            and the symmetric part is kept; variances of zero are allowed. Variances alone are passed
            as ``torch.diag_embed(variances)``.

    Attributes:
        mean: A ``batch_shape x d`` tensor.
        covariance: A ``batch_shape x d x d`` tensor of symmetric matrices.
        labels: An array of shape ``batch_shape``, the names that came with the clouds of
            ``from_clouds``; None elsewhere.

    Raises:
        ValueError: If an entry is not finite, a covariance is not symmetric or not positive
            semi-definite, or shapes or dtypes do not fit.
    """

    _noun: ClassVar[str] = "Gaussian"
    _axes: ClassVar[dict[str, int]] = {"mean": 1, "covariance": 2}

    mean: Tensor
    covariance: Tensor

    def __init__(self, mean: Data, covariance: Data) -> None:
        self._fill(*read_gaussians(mean, covariance))
        self._warn_if_single(stacklevel=3)

    @classmethod
    def from_clouds(cls, clouds: PointClouds) -> Gaussians:
        """Take the Gaussians with the means and covariances of clouds.

        The covariance is that of the cloud as a measure, ``sum_i w_i (x_i - m)(x_i - m)'``.

        Args:
            clouds: The clouds.

        Returns:
            The Gaussians, with the labels of the clouds.
        """
        mean, covariance = weighted_moments(clouds.points, clouds.weights)
        return cls._unchecked(mean, covariance, labels=clouds.labels)

    @classmethod
    def unpack(cls, rows: Data, dim: int) -> Gaussians:
        """Read rows back: the inverse of ``pack``, but for the labels, which rows do not hold.

        Args:
            rows: A ``batch_shape x (d+d*d)`` tensor or array.
            dim: The dimension ``d``.

        Returns:
            The Gaussians.

        Raises:
            ValueError: As the class does, and if the rows have another width.
        """
        return cls._read(*read_gaussian_rows(rows, dim))

    def pack(self) -> Tensor:
        """Lay the Gaussians out as rows: the mean, then the covariance row by row.

        Returns:
            A ``batch_shape x (d+d*d)`` tensor.
        """
        return join_gaussians(self.mean, self.covariance)

    def as_mixtures(self) -> GaussianMixtures:
        """The same measures as mixtures of one component."""
        mean = self.mean.unsqueeze(-2)
        weights = mean.new_ones(mean.shape[:-1])
        return GaussianMixtures._unchecked(
            mean, self.covariance.unsqueeze(-3), weights, labels=self.labels
        )

    def sample(self, n: int, *, seed: int | torch.Generator = 0) -> PointClouds:
        """Draw independent points from each Gaussian; they carry no gradient.

        Args:
            n: The number of draws.
            seed: The seed of the draws, or a generator, on the device of the Gaussians, to draw from.

        Returns:
            Clouds of ``n`` atoms of weight ``1 / n``, with the labels of the Gaussians.

        Raises:
            ValueError: If ``n`` is no integer >= 1.
        """
        return self.as_mixtures().sample(n, seed=seed)

    def normalize(self, like: Gaussians | None = None, *, scale: Data | None = None) -> Gaussians:
        """Centre and scale each coordinate: the law of ``(x - centre) / scale``.

        The centre is the mean over the Gaussians of their means; the default scale is the root of the
        mean over the Gaussians of their second moments about it.

        Args:
            like: The Gaussians that give centre and scale: the training data, when test data are
                normalised. Default: these Gaussians.
            scale: A scale for all coordinates, or ``d`` scales, in their units, in place of the
                default. The centre is subtracted all the same.

        Returns:
            The Gaussians, with the same labels.

        Raises:
            TypeError: If ``like`` is something else.
            ValueError: If the dimensions differ, a scale is not positive, or a coordinate has one
                value only and no scale is given.
        """
        return self._scaled(*self._source(like)._centre_and_scale(scale))

    def _centre_and_scale(self, scale: Data | None) -> tuple[Tensor, Tensor]:
        return self.as_mixtures()._centre_and_scale(scale)

    def _scaled(self, centre: Tensor, scale: Tensor) -> Gaussians:
        normal = self.as_mixtures()._scaled(centre, scale)
        mean, covariance = normal.mean.squeeze(-2), normal.covariance.squeeze(-3)
        return self._unchecked(mean, covariance, labels=self.labels)
