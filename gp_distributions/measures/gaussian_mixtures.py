"""Mixtures of Gaussians as inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gp_distributions.measures._container import Container, counted_sizes
from gp_distributions.measures._covariances import symmetric_root
from gp_distributions.measures._gaussian_arrays import (
    read_mixture_list,
    read_mixture_rows,
    read_mixtures,
)
from gp_distributions.measures._sampling import draw_indices, seeded
from gp_distributions.measures._validation import equal_weights
from gp_distributions.measures.arrays import Data, integer
from gp_distributions.measures.normalization import pooled_centre_and_scale
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.rows.clouds import pad_rows
from gp_distributions.rows.gaussians import join_mixtures


@dataclass(frozen=True, init=False, eq=False, repr=False)
class GaussianMixtures(Container):
    """Mixtures of Gaussians: the probability measures ``sum_k w_k N(m_k, S_k)``.

    The data are checked once, here, and frozen. Arrays are copied, to the CPU; tensors keep their
    device, and gradients flow through all three. Single precision is kept, with a warning. Mixtures lie
    along the last batch axis: ``len(mixtures)`` is its length, and ``mixtures[index]`` selects from it.

    Args:
        mean: A ``batch_shape x K x d`` tensor or array, the means of the components.
        covariance: A ``batch_shape x K x d x d`` tensor or array, their covariances. Asymmetry within
            rounding is accepted, and the symmetric part is kept; variances of zero are allowed.
        weights: A ``batch_shape x K`` tensor or array of weights >= 0, which are divided by their sum
            over each mixture. Default: equal weights.

    Attributes:
        mean: A ``batch_shape x K x d`` tensor.
        covariance: A ``batch_shape x K x d x d`` tensor of symmetric matrices.
        weights: A ``batch_shape x K`` tensor of weights that sum to one over each mixture. Components
            of weight zero are padding, which changes no result and stays when mixtures are selected.
        labels: An array of shape ``batch_shape``, the names that came with what these mixtures were
            made of; None elsewhere.

    Raises:
        ValueError: If an entry is not finite, a covariance is not symmetric or not positive
            semi-definite, a weight is negative, the weights of a mixture are all zero, or shapes or
            dtypes do not fit.
    """

    _noun: ClassVar[str] = "mixture"
    _axes: ClassVar[dict[str, int]] = {"mean": 2, "covariance": 3, "weights": 1}

    mean: Tensor
    covariance: Tensor
    weights: Tensor

    def __init__(self, mean: Data, covariance: Data, weights: Data | None = None) -> None:
        self._fill(*read_mixtures(mean, covariance, weights))
        self._warn_if_single(stacklevel=3)

    @classmethod
    def from_list(cls, mixtures: Iterable[tuple[Data, Data, Data]]) -> GaussianMixtures:
        """Read mixtures of any numbers of components, padded with components of weight zero.

        Args:
            mixtures: For each mixture, ``K_i x d`` means, ``K_i x d x d`` covariances and ``K_i``
                weights >= 0, as tensors or arrays.

        Returns:
            The mixtures, in order.

        Raises:
            ValueError: As the class does, and if there is no mixture or dimensions differ.
        """
        return cls._read(*read_mixture_list(mixtures))

    @classmethod
    def unpack(cls, rows: Data, dim: int) -> GaussianMixtures:
        """Read rows back: the inverse of ``pack``, but for the labels, which rows do not hold.

        Args:
            rows: A ``batch_shape x K*(d+d*d+1)`` tensor or array.
            dim: The dimension ``d``.

        Returns:
            The mixtures.

        Raises:
            ValueError: As the class does, and if the width of the rows is no multiple of
                ``d + d*d + 1``.
        """
        return cls._read(*read_mixture_rows(rows, dim))

    def pack(self, components: int | None = None) -> Tensor:
        """Lay the mixtures out as rows: components in turn, each mean, covariance and weight.

        Covariances are laid out row by row.

        Args:
            components: The number ``K`` of components in a row, which gives several sets of mixtures
                one width. Default: the stored number. A smaller one cuts off padding only.

        Returns:
            A ``batch_shape x K*(d+d*d+1)`` tensor.

        Raises:
            ValueError: If ``components`` is too small for the largest mixture.
        """
        count = self.weights.shape[-1] if components is None else integer(components, "components")
        beyond = (self.weights[..., count:] > 0).nonzero()[:, -1]
        if len(beyond):
            needed = count + 1 + int(beyond.max())
            raise ValueError(
                f"Expected components >= {needed}, for the largest mixture, got {count}."
            )
        rows = join_mixtures(
            self.mean[..., :count, :], self.covariance[..., :count, :, :], self.weights[..., :count]
        )
        return pad_rows(rows, count * (self.dim + self.dim**2 + 1))

    def sample(self, n: int, *, seed: int | torch.Generator = 0) -> PointClouds:
        """Draw independent points from each mixture; they carry no gradient.

        Args:
            n: The number of draws.
            seed: The seed of the draws, or a generator, on the device of the mixtures, to draw from.

        Returns:
            Clouds of ``n`` atoms of weight ``1 / n``, with the labels of the mixtures.

        Raises:
            ValueError: If ``n`` is no integer >= 1.
        """
        count, generator = integer(n, "n"), seeded(seed, self.device)
        chosen = draw_indices(self.weights, count, generator)
        shape = (*self.batch_shape, count, self.dim)
        normal = torch.randn(shape, generator=generator, dtype=self.dtype, device=self.device)
        # Every component moves every draw, and each draw takes the one that was chosen.
        moved = normal.unsqueeze(-3) @ symmetric_root(self.covariance)
        moved = moved + self.mean.detach().unsqueeze(-2)
        index = chosen[..., None, :, None].expand(*self.batch_shape, 1, count, self.dim)
        points = moved.gather(-3, index).squeeze(-3)
        return PointClouds._unchecked(points, equal_weights(points), labels=self.labels)

    def normalize(
        self, like: GaussianMixtures | None = None, *, scale: Data | None = None
    ) -> GaussianMixtures:
        """Centre and scale each coordinate: the law of ``(x - centre) / scale``.

        The centre is the mean over the mixtures of their means; the default scale is the root of the
        mean over the mixtures of their second moments about it. Each mixture counts once.

        Args:
            like: The mixtures that give centre and scale: the training data, when test data are
                normalised. Default: these mixtures.
            scale: A scale for all coordinates, or ``d`` scales, in their units, in place of the
                default. The centre is subtracted all the same.

        Returns:
            The mixtures, with the same weights and labels.

        Raises:
            TypeError: If ``like`` is something else.
            ValueError: If the dimensions differ, a scale is not positive, or a coordinate has one
                value only and no scale is given.
        """
        return self._scaled(*self._source(like)._centre_and_scale(scale))

    def _centre_and_scale(self, scale: Data | None) -> tuple[Tensor, Tensor]:
        variance = self.covariance.diagonal(dim1=-2, dim2=-1)
        return pooled_centre_and_scale(self.mean, variance, self.weights, scale)

    def _scaled(self, centre: Tensor, scale: Tensor) -> GaussianMixtures:
        scale = scale.expand(self.dim)
        mean = (self.mean - centre) / scale
        covariance = self.covariance / (scale.unsqueeze(-1) * scale)
        return self._unchecked(mean, covariance, self.weights, labels=self.labels)

    @property
    def sizes(self) -> Tensor:
        """The number of components of positive weight: a ``batch_shape`` integer tensor."""
        return (self.weights > 0).sum(-1)

    def _details(self) -> list[str]:
        return [counted_sizes(self.sizes, "component")]
