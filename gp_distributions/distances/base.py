"""The base class of distances, which represent each cloud by a vector and compare these vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gp_distributions.distances import comparison
from gp_distributions.distances.comparison import in_mode, needs_gradient
from gp_distributions.distances.embedded_rows import EmbeddedRows, RowMemory, Rows, rows_of
from gp_distributions.measures.arrays import integer
from gp_distributions.numerics.linear_algebra import put_rows
from gp_distributions.numerics.pairwise import squared_euclidean
from gp_distributions.rows.clouds import drop_copies, drop_padding, expand_batches
from gp_distributions.rows.layout import Block, check_weights, chunks, normalized
from gp_distributions.rows.tensors import check_content, is_tracked


class Distance(torch.nn.Module, ABC):
    r"""Base class of Hilbertian distances between distributions.

    A subclass implements :meth:`represent`, which is called once for each cloud. If the distance is
    not the Euclidean distance between representations, the subclass also overrides
    :meth:`compare_all`, :meth:`compare_paired` and :attr:`euclidean`. The subclass stores constructor
    arguments as attributes of the same name, and tensors as parameters or buffers.

    Distances between fixed clouds are computed once: models hold the representations of their rows, and
    the distance remembers the sets of rows that it last compared with themselves.

    Args:
        dim: Dimension ``d`` of the atoms.
        inputs: What the rows hold: ``"clouds"``; ``"gaussians"``, each a mean and a row-major
            covariance; or ``"mixtures"`` of Gaussians, each component a mean, a row-major covariance
            and a weight.

    Attributes:
        supported_inputs: Accepted values of ``inputs``.
        reads_coordinates: Whether distances depend on the coordinates of atoms as numbers. If not, atoms
            are labels or indices, and may have any scale.
        ard_num_dims: Number of lengthscales of a kernel; ``None`` for one for all features.
        rotating: Sizes of the leading groups of coordinates that rotate together, with one scale each.
        trims_padding: Whether :meth:`represent` does not depend on padding. If so, it gets clouds of
            similar size together, without padding, which is faster.
        chunk_elements: Largest number of floats in the intermediate results for a chunk of clouds,
            which is chosen so that a chunk fits into the processor's cache.
        block_rows: Number of rows that are compared at a time if a set of rows is large.

    Raises:
        ValueError: If ``dim`` is not an integer >= 1, or if the distance does not accept ``inputs``.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.distances import Distance
        >>> class Means(Distance):
        ...     def represent(self, points, weights):
        ...         return (weights.unsqueeze(-2) @ points).squeeze(-2)
        >>> clouds = PointClouds.from_list([[[0.0, 0.0], [2.0, 0.0]], [[1.0, 3.0]]])
        >>> Means(2).squared(clouds.pack())
        tensor([[0., 9.],
                [9., 0.]], dtype=torch.float64)
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds",)
    reads_coordinates: bool = True
    ard_num_dims: int | None = None
    rotating: tuple[int, ...] = ()
    trims_padding: bool = False
    chunk_elements: int = 2**18
    block_rows: int = 2048
    # Buffers that are set from data, so that saved ones may have another shape.
    _resized: ClassVar[tuple[str, ...]] = ()

    def __init__(self, dim: int, *, inputs: str = "clouds") -> None:
        super().__init__()
        if inputs not in self.supported_inputs:
            supported = " or ".join(f'"{name}"' for name in self.supported_inputs)
            raise ValueError(
                f"Expected inputs={supported} for {type(self).__name__}, got {inputs!r}."
            )
        self.dim = integer(dim, "dim")
        self.inputs = inputs
        self.memory = RowMemory()

    @abstractmethod
    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent each cloud by one vector.

        Args:
            points: A ``C x n x atom_dim`` tensor of atoms. A Gaussian is a single atom.
            weights: A ``C x n`` tensor of weights that sum to one in each cloud.

        Returns:
            A ``C x D`` tensor.
        """

    def adapt(self, rows: Tensor) -> None:
        """Choose the settings that depend on the data. The base class has no such settings.

        Args:
            rows: A ``batch_shape x N x width`` tensor: the first rows that the distance sees. In a
                :class:`DistributionGP`, these are the training rows.
        """

    @property
    def block(self) -> Block:
        """The layout of the rows that the distance reads."""
        return Block(self.inputs, self.dim)

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance between representations."""
        return True

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations.

        Args:
            r1: A ``batch_shape x N x D`` tensor.
            r2: A ``batch_shape x M x D`` tensor, which may be ``r1`` itself.

        Returns:
            A ``batch_shape x N x M`` tensor.
        """
        return squared_euclidean(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations, ``batch_shape x N``."""
        return (r1 - r2).square().sum(-1)

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        return max(1, self.chunk_elements // (num_atoms * (self.block.atom_dim + 1)))

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent rows as ``batch_shape x N x D``, whose atoms are multiplied by ``factors`` first."""
        return self._in_chunks(rows, in_mode(self).represent, factors)

    def _in_chunks(
        self,
        rows: Tensor,
        represent: Callable[[Tensor, Tensor], Tensor],
        factors: Tensor | None = None,
    ) -> Tensor:
        """Compute a vector from each row by ``represent``, in chunks that fit into the cache."""

        def part(points: Tensor, weights: Tensor) -> Tensor:
            # Padding may have a gradient in its weights.
            if self.trims_padding and not is_tracked(weights):
                points, weights = drop_padding(points, weights)
            return represent(points if factors is None else points * factors, weights)

        points, weights = self.block.split(rows)
        batch_shape, num_atoms = weights.shape[:-1], weights.shape[-1]
        points = points.reshape(-1, num_atoms, points.shape[-1])
        size = self.chunk_size(num_atoms)
        tracked = needs_gradient(in_mode(self), rows) or (
            factors is not None and is_tracked(factors)
        )
        if len(points) <= size or tracked:
            weights = normalized(weights).reshape(-1, num_atoms)
            parts = map(part, points.split(size), weights.split(size))
            return torch.cat(list(parts)).unflatten(0, batch_shape)
        check_weights(weights)
        weights = weights.reshape(-1, num_atoms)
        out: Tensor | None = None
        with torch.no_grad():
            for chunk in chunks(weights, size, by_atoms=self.trims_padding):
                found = part(points[chunk], normalized(weights[chunk]))
                out = _empty(len(points), found) if out is None else out
                put_rows(out, chunk, found)
        assert out is not None
        return out.unflatten(0, batch_shape)

    def represent_once(self, rows: EmbeddedRows) -> Tensor:
        """Represent rows that do not hold it, without gradients also without expanded axes."""
        every = rows.rows  # copies of a row have gradients of their own
        return self.represent_rows(every if every.requires_grad else drop_copies(every))

    def represented(self, rows: Rows) -> Tensor:
        """Adapt to rows and represent them, with gradients if they need some; rows hold the result.

        The result lacks the expanded batch axes of rows that have no gradient, but broadcasts with them.
        """
        self._adapt(rows_of(rows))
        return _joined((self._represented(part) for part in self._embedded(rows).parts), dim=-2)

    def _represented(self, x: EmbeddedRows) -> Tensor:
        """Represent rows, once unless only the parameters of the distance have a gradient."""
        current = in_mode(self)
        if not needs_gradient(current, x.rows):
            with torch.no_grad():
                return x.derived("representation", lambda: self.represent_once(x), by=self)
        if not x.rows.requires_grad:
            return current.represent_rows(x.rows)
        return x.derived("tracked", lambda: current.represent_once(x), by=self)

    def _embedded(self, rows: Rows) -> EmbeddedRows:
        """Return what holds rows: for a plain tensor, after a check, the memory of the distance."""
        if isinstance(rows, EmbeddedRows):
            return rows
        self.check_rows(rows)
        return self.memory.find(rows)

    def check_rows(self, rows: Tensor) -> None:
        """Check that the distance can read rows.

        Raises:
            TypeError: If they are not a dense tensor, or one within a transform of ``torch.func``.
            ValueError: If they have another width, or no axis that counts them.
        """
        check_content(rows)
        self.block.split(rows)
        if rows.dim() < 2:
            raise ValueError(
                f"Expected rows as a tensor of shape (..., N, m*(d+1)), got {tuple(rows.shape)}."
            )

    def _adapt(self, rows: Tensor) -> None:
        with torch.no_grad():
            self.adapt(drop_copies(rows.detach()))

    def forward(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Return :meth:`squared` for rows, or for what holds them; the caller must not change it."""
        x2 = x1 if x2 is None else x2
        rows = rows_of(x1), rows_of(x2)
        first = self._embedded(x1)
        second = first if x2 is x1 else self._embedded(x2)
        pair = partial(comparison.squared, self, diag=diag)
        if diag and _sizes(first) == _sizes(second):
            pairs = zip(first.parts, second.parts, strict=True)
            parts = (pair(*each).unsqueeze(-1) for each in pairs)
            found = _joined(parts, dim=-2).squeeze(-1)
        elif diag or second is first:
            whole = _whole(first)
            found = pair(whole, whole if second is first else _whole(second))
        else:
            blocks = (_joined((pair(i, j) for j in second.parts), dim=-1) for i in first.parts)
            found = _joined(blocks, dim=-2)
        if isinstance(x1, Tensor) and not diag and first.holds("within", by=self):
            self.memory.remember(x1, first)
        return expand_batches(found, *rows, diag=diag)

    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        """Compute squared Hilbert distances between clouds.

        Args:
            x1: A ``batch_shape x N x m*(d+1)`` tensor of rows.
            x2: A ``batch_shape x M x m'*(d+1)`` tensor of rows. Default: ``x1``.
            diag: Whether to compute only the distances of corresponding clouds, with ``M = N``.

        Returns:
            A ``batch_shape x N x M`` tensor, or ``batch_shape x N`` with ``diag``. Values are
            non-negative. Within one set, they are exactly zero between a cloud and itself.

        Raises:
            ValueError: If the width of the rows does not match ``dim``, a weight is negative or not
                finite, or all weights of a row are zero.
        """
        found = self.forward(x1, x2, diag=diag)
        return found if found.requires_grad else found.clone()

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """A function that computes features whose Euclidean distances are the distances between clouds.

        The function maps a ``batch_shape x N x m*(d+1)`` tensor of rows to a ``batch_shape x N x D``
        tensor of features. If the distance is not :attr:`euclidean`, then
        ``hasattr(distance, "embed")`` is ``False``.
        """
        if not self.euclidean:
            raise AttributeError(f"{self!r} has no finite number of features: use squared().")
        return self._embed

    def _embed(self, rows: Tensor) -> Tensor:
        found = _whole(self._embedded(rows))
        held = found.holds("representation", by=self)
        representation = self.represented(found)
        features = representation.expand(*rows.shape[:-1], -1)
        return features.clone() if held or features.shape != representation.shape else features

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute squared distances to the origin of inner products, which is a point mass at zero.

        Args:
            rows: A ``batch_shape x N x m*(d+1)`` tensor.

        Returns:
            A ``batch_shape x N`` tensor.
        """
        zero = torch.zeros_like(rows_of(rows).detach().reshape(-1, rows_of(rows).shape[-1])[:1])
        points, weights = self.block.split(zero)
        zero = self.block.join(points, torch.ones_like(weights))
        return self.forward(rows, zero).squeeze(-1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self._resized:
            if (saved := state_dict.get(prefix + name)) is not None:
                setattr(self, name, getattr(self, name).new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def clear_cache(self) -> None:
        """Forget all clouds that the distance, and those inside it, remember."""
        for module in self.modules():
            if isinstance(module, Distance):
                module.memory = RowMemory()


class DistanceWrapper(Distance):
    """Base class of distances around another distance, which they resemble unless they say otherwise.

    Args:
        distance: The other distance.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds", "gaussians", "mixtures")
    # Whether results are those of the distance inside, however they are found.
    transparent: ClassVar[bool] = False

    def __init__(self, distance: Distance) -> None:
        if not isinstance(distance, Distance):
            raise TypeError(f"Expected a Distance, got {type(distance).__name__}.")
        super().__init__(distance.dim, inputs=distance.inputs)
        self.distance = distance

    @property
    def inner(self) -> Distance:
        """The distance that this one resembles."""
        return self.distance

    def adapt(self, rows: Tensor) -> None:
        """Choose the settings of the distance."""
        self.distance.adapt(rows)

    @property
    def reads_coordinates(self) -> bool:  # type: ignore[override]
        """Whether distances depend on the coordinates of atoms as numbers."""
        return self.inner.reads_coordinates

    @property
    def rotating(self) -> tuple[int, ...]:  # type: ignore[override]
        """Sizes of the leading groups of coordinates that rotate together."""
        return self.inner.rotating

    @property
    def trims_padding(self) -> bool:  # type: ignore[override]
        """Whether :meth:`represent` drops padding."""
        return self.inner.trims_padding

    @property
    def euclidean(self) -> bool:
        """Whether the distance is the Euclidean distance between representations."""
        return self.inner.euclidean

    def chunk_size(self, num_atoms: int) -> int:
        """Return the number of clouds of ``num_atoms`` atoms to represent at a time."""
        return self.inner.chunk_size(num_atoms)


def _sizes(rows: EmbeddedRows) -> list[int]:
    return [part.rows.shape[-2] for part in rows.parts]


def _whole(rows: EmbeddedRows) -> EmbeddedRows:
    """Return rows in one part."""
    return rows if len(rows.parts) == 1 else EmbeddedRows(rows.rows)


def _joined(parts: Iterable[Tensor], *, dim: int) -> Tensor:
    """Join what is computed of several sets of rows along one of the last two axes."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    shape = torch.broadcast_shapes(*(part.shape[:-2] for part in parts))
    return torch.cat([part.expand(*shape, *part.shape[-2:]) for part in parts], dim=dim)


def _empty(rows: int, like: Tensor) -> Tensor:
    """Allocate an uninitialised tensor of ``rows`` rows with the width, dtype and device of ``like``."""
    shape = (rows, like.shape[-1])
    if like.device.type != "cpu":
        return like.new_empty(shape)
    # NumPy requests huge pages; without them, the first access to the memory takes as long as a sort.
    return torch.from_numpy(np.empty(shape, dtype=like.numpy().dtype))
