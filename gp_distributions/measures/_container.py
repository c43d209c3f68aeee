"""What all containers of distributions have in common: tensors over shared batch axes, frozen."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._indexing import Index, resolve
from gp_distributions.measures.arrays import Data
from gp_distributions.warnings import PrecisionWarning


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Container(ABC):
    """Distributions of one kind, that lie along the last batch axis of the tensors that hold them.

    Attributes:
        labels: An array of shape ``batch_shape``, the names of the distributions, or None.
    """

    # What one distribution is called.
    _noun: ClassVar[str]
    # The tensors, and the number of axes that each has beyond batch_shape.
    _axes: ClassVar[dict[str, int]]

    labels: npt.NDArray[Any] | None

    @classmethod
    def _read(cls, *tensors: Tensor, labels: npt.NDArray[Any] | None = None) -> Self:
        made = cls._unchecked(*tensors, labels=labels)
        made._warn_if_single(stacklevel=4)
        return made

    @classmethod
    def _unchecked(cls, *tensors: Tensor, labels: npt.NDArray[Any] | None = None) -> Self:
        made = cls.__new__(cls)
        made._fill(*tensors, labels=labels)
        return made

    def _fill(self, *tensors: Tensor, labels: npt.NDArray[Any] | None = None) -> None:
        if labels is not None:
            labels.flags.writeable = False
        for name, value in zip((*self._axes, "labels"), (*tensors, labels), strict=True):
            object.__setattr__(self, name, value)

    @property
    def _tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._axes]

    @property
    def batch_shape(self) -> torch.Size:
        """The shape of the batch axes; that of a single distribution is empty."""
        name, axes = next(iter(self._axes.items()))
        tensor: Tensor = getattr(self, name)
        return tensor.shape[: tensor.dim() - axes]

    @property
    def dim(self) -> int:
        """The dimension ``d``."""
        return self._tensors[0].shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the tensors."""
        return self._tensors[0].dtype

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._tensors[0].device

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert the tensors, with the arguments of ``torch.Tensor.to``.

        Raises:
            ValueError: If the dtype is neither double nor single precision.
        """
        tensors = [tensor.to(*args, **kwargs) for tensor in self._tensors]
        if tensors[0].dtype not in (torch.float64, torch.float32):
            raise ValueError(
                f"Expected dtype torch.float64 or torch.float32, got {tensors[0].dtype}."
            )
        return self._unchecked(*tensors, labels=self.labels)

    def _source(self, like: Self | None) -> Self:
        """What gives centre and scale: these distributions, or those that were given."""
        if like is None:
            return self
        if not isinstance(like, type(self)):
            name = type(self).__name__
            raise TypeError(
                f"Expected like to be {name}, got {type(like).__name__}. Make {name} of it first; "
                "a scale is given as scale=."
            )
        if like.dim != self.dim:
            raise ValueError(f"Expected like to have the dimension {self.dim}, got {like.dim}.")
        return like.to(device=self.device, dtype=self.dtype)

    @abstractmethod
    def _centre_and_scale(self, scale: Data | None) -> tuple[Tensor, Tensor]:
        """Centre and scale of each coordinate, pooled; the scale is that given, if any."""

    @abstractmethod
    def _scaled(self, centre: Tensor, scale: Tensor) -> Self:
        """The law of ``(x - centre) / scale``."""

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError(f"A single {self._noun} has no length and no index.")
        return self.batch_shape[-1]

    def __getitem__(self, index: Index) -> Self:
        key = resolve(index, len(self))
        labels = self.labels
        if labels is not None:
            # The ellipsis makes the label of one distribution an array, too.
            labels = labels[..., key.numpy(force=True) if isinstance(key, Tensor) else key]
        key = key.to(self.device) if isinstance(key, Tensor) else key
        tensors = [
            tensor[(..., key, *[slice(None)] * axes)]
            for tensor, axes in zip(self._tensors, self._axes.values(), strict=True)
        ]
        return self._unchecked(*tensors, labels=labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        if self.dtype != other.dtype or self.device != other.device:
            return False
        if self.labels is None or other.labels is None:
            same_labels = self.labels is other.labels
        else:
            same_labels = np.array_equal(self.labels, other.labels)
        return same_labels and all(map(torch.equal, self._tensors, other._tensors))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A tensor inside a graph refuses to be copied: like a pickle, the copy leaves the graph.
        tensors = [
            copy.deepcopy(tensor.detach(), memo).requires_grad_(tensor.requires_grad)
            for tensor in self._tensors
        ]
        return self._unchecked(*tensors, labels=copy.deepcopy(self.labels, memo))

    def __repr__(self) -> str:
        parts = [
            counted(" x ".join(map(str, self.batch_shape)) or "1", self._noun),
            *self._details(),
            f"d={self.dim}",
            str(self.dtype).removeprefix("torch."),
            *([] if self.device.type == "cpu" else [str(self.device)]),
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _details(self) -> list[str]:
        """What to print about the distributions besides their number, dimension and dtype."""
        return []

    def _warn_if_single(self, stacklevel: int) -> None:
        if self.dtype == torch.float32:
            warnings.warn(
                f"The {self._noun}s are in single precision, in which distances between similar "
                f"{self._noun}s lose half of the digits; double precision, torch.float64, is advised.",
                PrecisionWarning,
                stacklevel=stacklevel,
            )


def counted(number: str, noun: str) -> str:
    """A number with its noun in the singular or plural."""
    return f"{number} {noun}{'s' * (number != '1')}"


def counted_sizes(sizes: Tensor, noun: str) -> str:
    """The smallest and the largest of some sizes with the noun of what they count."""
    ordered = sorted(set(sizes.flatten().tolist()))
    return counted("-".join(map(str, dict.fromkeys(ordered[:1] + ordered[-1:]))) or "no", noun)
