"""Normalisation of clouds as a part of the model, which then takes clouds in their own units."""

from __future__ import annotations

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import Data
from gp_distributions.measures.normalization import given_scale
from gp_distributions.rows.clouds import join_rows, split_rows


class NormalizeClouds(InputTransform, torch.nn.Module):
    r"""Centre and scale each coordinate of clouds, alike in all atoms, within the model.

    .. math:: x \mapsto (x - c) / s

    As the ``input_transform`` of a :class:`DistributionGP` it normalises training and new clouds alike,
    so that a model, and the file that :func:`gp_distributions.save` writes, takes clouds in their own
    units. BoTorch's ``Normalize`` would scale each slot of a row by itself.

    Args:
        centre: :math:`c`, ``d`` numbers.
        scale: :math:`s`, one positive number or ``d`` of them.

    Raises:
        ValueError: If a scale is not positive, or lengths differ.
    """

    is_one_to_many = False
    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(self, centre: Tensor, scale: Data) -> None:
        super().__init__()
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", centre.detach().clone())
        self.register_buffer("scale", given_scale(scale, centre.detach()).clone())

    @classmethod
    def from_data(cls, X: PointClouds, scale: Data | None = None) -> NormalizeClouds:
        """Take centre and scale of training clouds, as :meth:`PointClouds.normalize` does.

        Args:
            X: The training clouds.
            scale: A scale in place of that of the clouds.

        Returns:
            The transform.

        Raises:
            TypeError: If ``X`` are no clouds.
            ValueError: If a scale is not positive, or a coordinate has one value only and no scale is
                given.
        """
        if not isinstance(X, PointClouds):
            raise TypeError(f"Expected PointClouds, got {type(X).__name__}.")
        with torch.no_grad():
            return cls(*X._centre_and_scale(scale))

    def transform(self, X: Tensor) -> Tensor:
        """The rows of normalised clouds.

        Args:
            X: A ``batch_shape x m*(d+1)`` tensor of rows.

        Returns:
            A tensor of that shape.
        """
        points, weights = split_rows(X, len(self.centre))
        return join_rows((points - self.centre) / self.scale, weights)

    def untransform(self, X: Tensor) -> Tensor:
        """The rows of clouds in their own units: the inverse of :meth:`transform`."""
        points, weights = split_rows(X, len(self.centre))
        return join_rows(points * self.scale + self.centre, weights)

    def equals(self, other: InputTransform) -> bool:
        """Whether another transform has the same centre and scale."""
        return (
            isinstance(other, NormalizeClouds)
            and torch.equal(self.centre, other.centre)
            and torch.equal(self.scale, other.scale)
        )
