"""Normalisation of clouds as part of a model, so that users pass clouds in their original units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from gp_distributions.measures import MixedInputs, PointClouds
from gp_distributions.measures.arrays import Data, given_scale
from gp_distributions.rows.clouds import join_rows, split_rows
from gp_distributions.rows.columns import Columns, Slots, numbers_of, select_columns


class NormalizeClouds(InputTransform, torch.nn.Module):
    r"""Input transform that centres and scales each coordinate of clouds, equally for all atoms.

    .. math:: x \mapsto (x - c) / s

    As the ``input_transform`` of a :class:`DistributionGP`, it normalises training and new clouds in the
    same way, so that the model takes clouds in their original units.
    :func:`gp_distributions.save` stores the transform with the model. Do not use BoTorch's ``Normalize``
    instead: it would scale each entry of a row separately.

    Args:
        centre: Centre :math:`c`, a tensor of shape ``d``.
        scale: Scale :math:`s`, one positive number or ``d`` of them.
        columns: Columns of a row that hold the clouds: numbers of columns, or
            ``model.encoding.columns[name]`` for a block of :class:`MixedInputs`. The default is all
            columns. To normalise several blocks, chain transforms with BoTorch's
            ``ChainedInputTransform(cells=..., blood=...)``.

    Raises:
        ValueError: If a scale is not positive, or the number of scales is not 1 or ``d``.

    Example:
        >>> import torch
        >>> from gp_distributions import NormalizeClouds, PointClouds
        >>> transform = NormalizeClouds(torch.tensor([3.0, 0.0], dtype=torch.float64), scale=2.0)
        >>> rows = transform(PointClouds([[[5.0, 8.0]]]).pack())
        >>> PointClouds.unpack(rows, dim=2).points
        tensor([[[1., 4.]]], dtype=torch.float64)
    """

    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(
        self, centre: Tensor, scale: Data, *, columns: Sequence[int] | Slots | None = None
    ) -> None:
        super().__init__()
        self.columns: Columns = (
            columns if columns is None or isinstance(columns, Slots) else tuple(columns)
        )
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", centre.detach().clone())
        self.register_buffer("scale", given_scale(scale, centre.detach()).clone())

    @classmethod
    def from_data(
        cls, X: PointClouds | MixedInputs, scale: Data | None = None, *, block: str | None = None
    ) -> NormalizeClouds:
        """Make a transform that normalises the training clouds as ``X.normalize(scale=scale)`` does.

        Args:
            X: Training clouds, or mixed inputs with a block of clouds.
            scale: One positive scale or ``d`` of them, used in place of the standard deviation of the
                clouds.
            block: Name of the block of clouds to normalise. Default: the only block of clouds.

        Returns:
            The transform.

        Raises:
            TypeError: If ``X``, or its block, is not ``PointClouds``.
            ValueError: If a scale is not positive, a coordinate is constant and no scale is given, or
                ``block`` is needed but not given, or not in ``X``.

        Example:
            >>> import numpy as np
            >>> from gp_distributions import DistributionGP, NormalizeClouds, PointClouds
            >>> clouds = PointClouds(np.random.default_rng(0).normal(5.0, 9.0, size=(10, 30, 2)))
            >>> transform = NormalizeClouds.from_data(clouds)
            >>> model = DistributionGP(clouds, np.arange(10.0), input_transform=transform)
            >>> mean, std = model.predict(clouds)
        """
        columns: Columns = None
        if isinstance(X, MixedInputs):
            clouds = [name for name, part in X.blocks.items() if isinstance(part, PointClouds)]
            name = clouds[0] if block is None and len(clouds) == 1 else block
            if name not in X.blocks:
                raise ValueError(f"Expected a block from {clouds} as block=, got {block!r}.")
            columns, X = X.encoding.columns[name], X.blocks[name]  # type: ignore[assignment]
        if not isinstance(X, PointClouds):
            raise TypeError(f"Expected PointClouds, got {type(X).__name__}.")
        with torch.no_grad():
            return cls(*X._centre_and_scale(scale), columns=columns)

    def transform(self, X: Tensor) -> Tensor:
        """Return the rows of the normalised clouds.

        Args:
            X: A ``batch_shape x m*(d+1)`` tensor of rows.

        Returns:
            A ``batch_shape x m*(d+1)`` tensor of rows.
        """
        return self._changed(X, lambda points: (points - self.centre) / self.scale)

    def untransform(self, X: Tensor) -> Tensor:
        """Return the rows of the clouds in their original units: the inverse of :meth:`transform`."""
        return self._changed(X, lambda points: points * self.scale + self.centre)

    def _changed(self, X: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return rows with other atoms in the columns of the clouds."""
        points, weights = split_rows(select_columns(X, self.columns), len(self.centre))
        clouds = join_rows(change(points), weights)
        if self.columns is None:
            return clouds
        numbers = torch.tensor(numbers_of(self.columns, X.shape[-1]), device=X.device)
        return X.index_copy(-1, numbers, clouds)

    def equals(self, other: InputTransform) -> bool:
        """Whether another transform is of this class and has the same centre and scale."""
        return (
            isinstance(other, NormalizeClouds)
            and self.columns == other.columns
            and torch.equal(self.centre, other.centre)
            and torch.equal(self.scale, other.scale)
        )
