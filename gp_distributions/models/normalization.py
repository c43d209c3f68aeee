"""Normalisation as part of a model, so that users pass distributions in their original units."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from gp_distributions.measures import MixedInputs
from gp_distributions.measures.arrays import Data, given_scale
from gp_distributions.measures.inputs import distributions_of
from gp_distributions.measures.kinds import KINDS, Distributions
from gp_distributions.rows.columns import Columns, Slots, numbers_of
from gp_distributions.rows.layout import Block


class NormalizeClouds(InputTransform, torch.nn.Module):
    r"""Input transform that centres and scales each coordinate of distributions.

    .. math:: x \mapsto (x - c) / s

    Gaussians and mixtures of Gaussians become those of the scaled variables: their covariances are
    divided by :math:`s_i s_j`.

    As the ``input_transform`` of a :class:`DistributionGP`, it normalises training and new clouds in the
    same way, so that the model takes clouds in their original units.
    :func:`gp_distributions.save` stores the transform with the model. Do not use BoTorch's ``Normalize``
    instead: it would scale each entry of a row separately.

    Args:
        centre: Centre :math:`c`, a tensor of shape ``d``.
        scale: Scale :math:`s`, one positive number or ``d`` of them.
        columns: Columns of a row that hold the distributions: numbers of columns, or
            ``model.encoding.columns[name]`` for a block of :class:`MixedInputs`. The default is all
            columns. To normalise several blocks, chain transforms with BoTorch's
            ``ChainedInputTransform(cells=..., blood=...)``.
        kind: Kind of the distributions: ``"clouds"``, ``"gaussians"`` or ``"mixtures"``.

    Raises:
        ValueError: If a scale is not positive, or the number of scales is not 1 or ``d``.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.models import NormalizeClouds
        >>> transform = NormalizeClouds(torch.tensor([3.0, 0.0], dtype=torch.float64), scale=2.0)
        >>> rows = transform(PointClouds([[[5.0, 8.0]]]).pack())
        >>> PointClouds.unpack(rows, dim=2).points
        tensor([[[1., 4.]]], dtype=torch.float64)
    """

    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(
        self,
        centre: Tensor,
        scale: Data,
        *,
        columns: Sequence[int] | Slots | None = None,
        kind: str = "clouds",
    ) -> None:
        super().__init__()
        self.kind = kind
        self.columns: Columns = (
            columns if columns is None or isinstance(columns, Slots) else tuple(columns)
        )
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", centre.detach().clone())
        self.register_buffer("scale", given_scale(scale, centre.detach()).clone())

    @classmethod
    def from_data(
        cls, X: Distributions | MixedInputs, scale: Data | None = None, *, block: str | None = None
    ) -> NormalizeClouds:
        """Make a transform that normalises distributions as ``X.normalize(scale=scale)`` does.

        Args:
            X: Training distributions, or mixed inputs with a block of them.
            scale: One positive scale or ``d`` of them, used in place of the standard deviation of the
                distributions.
            block: Name of the block to normalise. Default: the only block of distributions.

        Returns:
            The transform.

        Raises:
            TypeError: If ``X`` is neither distributions nor mixed inputs.
            ValueError: If a scale is not positive, a coordinate is constant and no scale is given, or
                ``block`` is needed but not given, or not in ``X``.

        Example:
            >>> import numpy as np
            >>> from gp_distributions import DistributionGP, PointClouds
            >>> from gp_distributions.models import NormalizeClouds
            >>> clouds = PointClouds(np.random.default_rng(0).normal(5.0, 9.0, size=(10, 30, 2)))
            >>> transform = NormalizeClouds.from_data(clouds)
            >>> model = DistributionGP(clouds, np.arange(10.0), input_transform=transform)
            >>> mean, std = model.predict(clouds)
        """
        columns: Columns = None
        if isinstance(X, MixedInputs):
            parts = distributions_of(X)
            name = next(iter(parts)) if block is None and len(parts) == 1 else block
            if name not in parts:
                raise ValueError(f"Expected a block from {[*parts]} as block=, got {block!r}.")
            columns, X = X.encoding.columns[name], parts[name]
        if not isinstance(X, Distributions):
            raise TypeError(f"Expected PointClouds or Gaussians, got {type(X).__name__}.")
        with torch.no_grad():
            return cls(*X._centre_and_scale(scale), columns=columns, kind=KINDS[type(X)])

    def transform(self, X: Tensor) -> Tensor:
        """Return the rows of the normalised distributions, as a tensor of the same shape."""
        return self._changed(X, self.centre, self.scale)

    def untransform(self, X: Tensor) -> Tensor:
        """Return the rows in the original units: the inverse of :meth:`transform`."""
        return self._changed(X, -self.centre / self.scale, 1 / self.scale)

    def _changed(self, X: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
        """Return rows with the distributions of ``(x - centre) / scale``."""
        block = Block(self.kind, len(centre), self.columns)
        atoms, weights = block.split(block.select(X))
        means, covariances = atoms.tensor_split([block.dim], dim=-1)
        atoms = (means - centre) / scale
        if self.kind != "clouds":
            scales = scale.expand(block.dim)
            atoms = torch.cat([atoms, covariances / torch.outer(scales, scales).flatten()], dim=-1)
        rows = block.join(atoms, weights)
        if self.columns is None:
            return rows
        numbers = torch.tensor(numbers_of(self.columns, X.shape[-1]), device=X.device)
        return X.index_copy(-1, numbers, rows)

    def equals(self, other: InputTransform) -> bool:
        """Whether another transform is of this class and has the same centre and scale."""
        return (
            isinstance(other, NormalizeClouds)
            and (self.kind, self.columns) == (other.kind, other.columns)
            and torch.equal(self.centre, other.centre)
            and torch.equal(self.scale, other.scale)
        )
