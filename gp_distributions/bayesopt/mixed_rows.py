"""The inputs of models in a mixed search: how the columns of its parts become rows of mixed inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from gp_distributions.measures.encoding import MixedEncoding
from gp_distributions.rows.columns import Slots


class JoinParts(InputTransform, torch.nn.Module):
    """Decode the columns of each part, and join the results to rows of mixed inputs.

    Args:
        columns: The columns of each part in the inputs, by its name.
        encoding: The layout of the rows.
        transforms: The input transforms of some parts, by name, such as decoders.

    Example:
        >>> import torch
        >>> from gp_distributions import Decoder, MixedInputs, PointClouds
        >>> from gp_distributions.bayesopt.mixed_rows import JoinParts
        >>> encoding = MixedInputs(shape=PointClouds([[[0.0]], [[1.0]]]), angle=[0.0, 2.0]).encoding
        >>> decoder = Decoder(lambda designs: designs.unsqueeze(-2))  # a cloud of one atom
        >>> join = JoinParts({"shape": slice(1, 2), "angle": slice(0, 1)}, encoding, {"shape": decoder})
        >>> join.transform(torch.tensor([[0.5, 7.0]]))  # angle, coordinate, weight
        tensor([[0.5000, 7.0000, 1.0000]])
    """

    is_one_to_many = False
    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(
        self,
        columns: Mapping[str, slice],
        encoding: MixedEncoding,
        transforms: Mapping[str, InputTransform],
    ) -> None:
        super().__init__()
        self.columns = dict(columns)
        self.encoding = encoding
        self.names = list(transforms)
        self.transforms = torch.nn.ModuleList(transforms.values())

    def transform(self, X: Tensor) -> Tensor:
        """Join the parts of a ``batch_shape x q x columns`` tensor.

        Returns:
            A ``batch_shape x q x width`` tensor of rows.
        """
        decoders: dict[str, Any] = dict(zip(self.names, self.transforms, strict=True))
        fixed: list[Tensor] = []
        slots: list[Tensor] = []
        for name, place in self.encoding.columns.items():
            part = X[..., self.columns[name]]
            if name in decoders:
                part = decoders[name].transform(part)
            if isinstance(place, Slots):
                slots.append(part.unflatten(-1, (-1, place.size)))
            else:
                fixed.append(part)
        if slots:
            most = max(part.shape[-2] for part in slots)
            padded = [_padded(part, most - part.shape[-2]) for part in slots]
            fixed.append(torch.cat(padded, dim=-1).flatten(-2))
        return torch.cat(fixed, dim=-1)

    def equals(self, other: InputTransform) -> bool:
        """Returns whether another transform joins the same parts in the same way."""
        return (
            isinstance(other, JoinParts)
            and (self.columns, self.encoding) == (other.columns, other.encoding)
            and self.names == other.names
            and all(map(_same, self.transforms, other.transforms))
        )


def _same(first: Any, second: Any) -> bool:
    return bool(first.equals(second))


def _padded(slots: Tensor, more: int) -> Tensor:
    """Append atoms of weight zero."""
    return torch.nn.functional.pad(slots, (0, 0, 0, more))
