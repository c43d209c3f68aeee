"""Base classes of the containers of distributions: frozen tensors with common batch axes."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Data, Labels, Wording, given_scale, integer
from gp_distributions.measures.tables import (
    Columns,
    Names,
    in_one_order,
    in_order,
    joined_labels,
)
from gp_distributions.rows.tensors import at, is_tracked, is_wide, joined
from gp_distributions.warnings import PrecisionWarning, warn

Index: TypeAlias = int | str | slice | Sequence[Any] | npt.NDArray[Any] | Tensor
# Number of axes, the last, that count coordinates in a tensor of this name.
_COUNTING = {"points": 1, "mean": 1, "covariance": 2}


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Container(ABC):
    """Distributions of one kind, indexed by the last batch axis of the tensors that hold them.

    Attributes:
        labels: Names of the distributions, an array of shape ``batch_shape``, or None.
        columns: Names of the first coordinates, as read from data frames, or None.
    """

    # What one distribution is called in messages.
    _noun: ClassVar[str]
    # Names of the tensors, and the number of axes that each has after the batch axes.
    _axes: ClassVar[dict[str, int]]
    # Names of what else is known of all distributions, which has defaults on the class.
    _known: ClassVar[tuple[str, ...]] = ("columns",)

    labels: Labels | None
    columns: Columns

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            remedy = "; functions of tensors take rows, X.pack()" if hasattr(Tensor, name) else ""
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{remedy}")

    @classmethod
    def _read(cls, *tensors: Tensor, **known: Any) -> Self:
        made = cls._unchecked(*tensors, **known)
        made._warn()
        return made

    @classmethod
    def _unchecked(cls, *tensors: Tensor, **known: Any) -> Self:
        made = cls.__new__(cls)
        made._fill(*tensors, **known)
        return made

    def _alike(self, *tensors: Tensor, **known: Any) -> Self:
        """Return other distributions with the same labels, of which the same is known, unless given."""
        return self._unchecked(*tensors, **{"labels": self.labels} | self._knowledge | known)

    def _fill(self, *tensors: Tensor, labels: Labels | None = None, **known: Any) -> None:
        if labels is not None:
            labels.flags.writeable = False
        vars(self).update(zip((*self._axes, "labels"), (*tensors, labels), strict=True))
        vars(self).update({"columns": None} | known)

    def _warn(self) -> None:
        if self.dtype == torch.float32:
            warn(
                f"The {self._noun}s are in single precision, in which distances between similar "
                f"{self._noun}s lose half of their digits. Use double precision, torch.float64.",
                PrecisionWarning,
            )

    @classmethod
    def _concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenate distributions with one batch axis; smaller ones are padded."""
        parts, _ = in_one_order(parts, Wording("Part"))
        tensors = [joined([getattr(part, name) for part in parts]) for name in cls._axes]
        return cls._unchecked(*tensors, labels=joined_labels(parts), **cls._common(parts))

    @classmethod
    def _common(cls, parts: Sequence[Container]) -> dict[str, Any]:
        """Return what is known alike of all parts."""
        first, *others = (part._knowledge for part in parts)
        return {n: v for n, v in first.items() if all(other.get(n) == v for other in others)}

    @property
    def _knowledge(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._known}

    @property
    def _names(self) -> Names | None:
        labels = self.labels
        return None if labels is None or labels.ndim != 1 else Names(labels)

    @property
    def _tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._axes]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch axes, which is empty for a single distribution."""
        axes = next(iter(self._axes.values()))
        return self._tensors[0].shape[:-axes]

    @property
    def dim(self) -> int:
        """Dimension ``d`` of the space."""
        return self._tensors[0].shape[-1]

    @property
    def _num_normals(self) -> int:
        """Number of columns at the end that are neither centred nor scaled."""
        return 0

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the tensors."""
        return self._tensors[0].dtype

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self._tensors[0].device

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert the dtype or device of the tensors, with the arguments of ``torch.Tensor.to``.

        Raises:
            ValueError: If the dtype is neither ``torch.float64`` nor ``torch.float32``.

        Example:
            >>> import torch
            >>> from gp_distributions import PointClouds
            >>> PointClouds([[0.0, 1.0]]).to(torch.float32)
            PointClouds(1 cloud, 1 atom, d=2, float32)
        """
        tensors = [tensor.to(*args, **kwargs) for tensor in self._tensors]
        if tensors[0].dtype not in (torch.float64, torch.float32):
            raise ValueError(
                f"Expected dtype torch.float64 or torch.float32, got {tensors[0].dtype}."
            )
        return self._alike(*tensors)

    def normalize(self, like: Self | None = None, scale: Data | None = None) -> Self:
        """Centre and scale each coordinate: return the distributions of ``(x - centre) / scale``.

        The default centre and scale are the mean and the standard deviation of the average of the
        distributions, in which each counts once, regardless of its number of atoms or components. They
        are the same for all distributions. Clouds with normals have one scale, the root mean square of
        the deviations of all coordinates of the positions, and keep their normals.

        Args:
            like: Distributions that define the centre and the scale, such as the training data when
                test data are normalised. Default: the distributions themselves.
            scale: One scale for all coordinates or ``d`` scales, in the units of the coordinates,
                which replace the standard deviation. The centre is subtracted in any case.

        Returns:
            The normalised distributions, with the same weights and labels.

        Raises:
            TypeError: If ``like`` is of another kind or dimension.
            ValueError: If a scale is not positive; no scale is given, and there are no distributions or
                a coordinate is constant; or clouds have normals, and coordinates different scales.

        Example:
            >>> from gp_distributions import PointClouds
            >>> train = PointClouds([[[0.0], [2.0]], [[4.0], [6.0]]])
            >>> train.normalize(scale=2.0).points.flatten()
            tensor([-1.5000, -0.5000,  0.5000,  1.5000], dtype=torch.float64)
            >>> PointClouds([[[3.0]]]).normalize(like=train).points.item()
            0.0
        """
        like = self if like is None else like
        if not isinstance(like, type(self)) or like.dim != self.dim:
            raise TypeError(
                f"Expected like to be {type(self).__name__} of dimension {self.dim}, got {like!r}. "
                "Convert it, or pass a scale as scale=."
            )
        if like._num_normals != self._num_normals:
            raise TypeError(f"Expected like with normals as in {self!r}, got {like!r}.")
        like = in_order(like, self.columns, "like").to(device=self.device, dtype=self.dtype)
        return self._scaled(*like._centre_and_scale(scale))

    def _centre_and_scale(self, scale: Data | None) -> tuple[Tensor, Tensor]:
        """Compute the centre and the scale of each coordinate from the average of the distributions.

        Args:
            scale: One positive number or ``d`` of them; None for the standard deviation of the average.

        Returns:
            The mean of the average, of shape ``d``, and the scale, a scalar or of shape ``d``.

        Raises:
            ValueError: If a scale is not positive; or no scale is given, and there are no distributions
                or a coordinate is constant.
        """
        mean, variance, weights = self._components()
        weights = weights.unsqueeze(-2)
        centre = (weights @ mean).reshape(-1, self.dim).mean(0)
        if scale is not None:
            return centre, given_scale(scale, centre)
        present = weights.squeeze(-2) > 0
        same = mean[present] == mean[present][:1]
        constant = same.all(0) & (variance[present] <= 0).all(0)
        if constant.any():
            raise ValueError(
                f"Coordinate {int(constant.nonzero()[0])}: expected several values, whose standard "
                "deviation is the scale, got one value everywhere; pass scale=."
            )
        squares = weights @ (variance + (mean - centre).square())
        return centre, squares.reshape(-1, self.dim).mean(0).sqrt()

    @abstractmethod
    def _components(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the means and variances of the components or atoms, and their weights."""

    @abstractmethod
    def _scaled(self, centre: Tensor, scale: Tensor) -> Self:
        """Return the distributions of ``(x - centre) / scale``."""

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError(f"A single {self._noun} has no length and cannot be indexed.")
        return self.batch_shape[-1]

    def __getitem__(self, index: Index) -> Self:
        key = resolve(index, len(self), self.labels)
        # The ellipsis makes the label of a single distribution an array, too.
        labels = None if self.labels is None else self.labels[..., key]
        return self._alike(*self._at(key), labels=labels)

    def _select(self, columns: Sequence[str]) -> Self:
        """Return the distributions with their named coordinates in another order."""
        assert self.columns is not None
        order = [*map(self.columns.index, columns), *range(len(columns), self.dim)]
        index = torch.tensor(order, device=self.device)
        moved = dict(zip(self._axes, self._tensors, strict=True))
        for name in moved:
            for axis in range(_COUNTING.get(name, 0)):
                moved[name] = moved[name].index_select(-1 - axis, index)
        return self._alike(*moved.values(), columns=tuple(columns))

    def _at(self, key: slice | npt.NDArray[np.intp]) -> list[Tensor]:
        return [
            tensor[(..., key, *[slice(None)] * axes)]
            for tensor, axes in zip(self._tensors, self._axes.values(), strict=True)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        # Distributions of unlike mass are equal.
        pairs = zip(self._tensors, other._tensors, self._axes.values(), strict=True)
        return (
            (self.dtype, self.device) == (other.dtype, other.device)
            and np.array_equal(np.asarray(self.labels), np.asarray(other.labels))
            and self._knowledge == other._knowledge
            and all(torch.equal(one, two) for one, two, axes in pairs if axes)
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A tensor inside a graph cannot be deep-copied, so the copy leaves the graph, as a pickle does.
        tensors = [t.detach().clone().requires_grad_(t.requires_grad) for t in self._tensors]
        return self._alike(*tensors)

    def __repr__(self) -> str:
        known = self._knowledge | {"columns": None}
        parts = [
            _counted(" x ".join(map(str, self.batch_shape)) or "1", self._noun),
            *self._details(),
            f"d={self.dim}",
            *(name if v is True else f"{name}={v}" for name, v in known.items() if v),
            str(self.dtype).removeprefix("torch."),
            *([] if self.device.type == "cpu" else [str(self.device)]),
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _details(self) -> list[str]:
        """Return what to print besides the number, dimension and dtype of the distributions."""
        return []


@dataclass(frozen=True, init=False, eq=False, repr=False)
class WeightedContainer(Container):
    """Distributions that are weighted sums of parts, which are atoms or components."""

    # What one part is called in messages.
    _part: ClassVar[str]

    weights: Tensor

    @property
    def sizes(self) -> Tensor:
        """Number of atoms or components of positive weight: a ``batch_shape`` tensor of integers."""
        return (self.weights > 0).sum(-1)

    def _at(self, key: slice | npt.NDArray[np.intp]) -> list[Tensor]:
        plain = isinstance(key, np.ndarray) and key.ndim == len(self.batch_shape) == 1
        if plain and is_wide(self.weights) and not is_tracked(*self._tensors):
            return [
                at(tensor, key.tolist()) if axes else tensor[key]  # type: ignore[union-attr]
                for tensor, axes in zip(self._tensors, self._axes.values(), strict=True)
            ]
        return super()._at(key)

    def _drawn(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``n`` parts by weight, with replacement: a ``batch_shape x n`` tensor of indices."""
        weights = self.weights.detach().reshape(-1, self.weights.shape[-1])
        drawn = torch.multinomial(weights, n, replacement=True, generator=generator)
        return drawn.reshape(*self.batch_shape, n)

    def _row_size(self, size: int | None) -> int:
        """Return the number of parts in a packed row, which must hold all parts of positive weight."""
        name = f"{self._part}s"
        count = self.weights.shape[-1] if size is None else integer(size, name)
        beyond = (self.weights[..., count:] > 0).nonzero()[:, -1]
        if len(beyond):
            needed = count + 1 + int(beyond.max())
            raise ValueError(
                f"Expected {name} >= {needed} to hold the largest {self._noun}, got {count}."
            )
        return count

    def _details(self) -> list[str]:
        sizes = sorted(set(self.sizes.flatten().tolist()))
        ends = "-".join(map(str, dict.fromkeys(sizes[:1] + sizes[-1:])))
        return [_counted(ends or "no", self._part)]


def _counted(number: str, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != '1')}"


def resolve(
    index: Index, length: int, labels: Labels | None = None
) -> slice | npt.NDArray[np.intp]:
    """Convert an index to a slice with a positive step or an array of integers.

    Args:
        index: An integer, a slice, a mask, or a list, array or tensor of integers; or labels that are
            text.
        length: Length of the axis.
        labels: Labels along the axis, or None.

    Raises:
        IndexError: If the index is out of range, of another type, or a mask of another length, or there
            is no such label.
    """
    if isinstance(index, slice) and (index.step is None or index.step > 0):
        return index
    places: Any = index.numpy(force=True) if isinstance(index, Tensor) else index
    named = np.asarray(places)
    if named.size and isinstance(named.flat[0], str):
        known, names = [] if labels is None else labels.tolist(), named.ravel().tolist()
        numbers, times = {name: number for number, name in enumerate(known)}, Counter(known)
        if wrong := [name for name in names if times[name] != 1]:
            raise IndexError(
                f"Expected positions, or labels that occur once in {reprlib.repr(known)}, got "
                f"{wrong[0]!r}."
            )
        places = np.reshape([numbers[name] for name in names], named.shape)
    return np.array(np.arange(length)[places])
