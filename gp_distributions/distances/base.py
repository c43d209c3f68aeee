"""The base of all distances: reading rows, batching, diagonals, chunks and caching."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gp_distributions.measures.arrays import integer
from gp_distributions.numerics.pairwise import squared_euclidean
from gp_distributions.numerics.single_thread import put_rows
from gp_distributions.rows.clouds import drop_copies, equal_rows, join_rows, split_rows
from gp_distributions.rows.memory import DistanceCache, Entry


class Distance(torch.nn.Module, ABC):
    r"""A Hilbertian distance between distributions that are laid out as rows.

    A subclass writes :meth:`represent`: what is computed once per cloud. If two clouds are compared
    by anything else than the Euclidean distance of their representations, it also writes
    :meth:`compare_all` and :meth:`compare_paired`.

    Distances between the same fixed clouds are computed once: they are remembered by content as
    long as neither the rows nor the parameters of the distance require a gradient.

    Args:
        dim: The dimension ``d`` of the atoms.
        inputs: What the rows hold: ``"clouds"``; ``"gaussians"``, each a mean and a row-major
            covariance; or ``"mixtures"`` of Gaussians, whose components in turn are a mean, a
            row-major covariance and a weight.

    Raises:
        ValueError: If ``dim`` is no integer >= 1, or the distance has no form for such inputs.
    """

    # The inputs that the distance has a form for.
    _supported_inputs: ClassVar[tuple[str, ...]] = ("clouds",)
    # Doubles that the intermediate results of one chunk of clouds may take: a chunk should fit the
    # processor's cache.
    _chunk_elements = 2**18
    # Whether clouds of like size should share a chunk, because represent cuts padding off.
    _trims_padding = False
    # Rows of a large set that are compared at a time.
    _block_rows = 2048

    def __init__(self, dim: int, *, inputs: str = "clouds") -> None:
        super().__init__()
        if inputs not in self._supported_inputs:
            supported = " or ".join(f'"{name}"' for name in self._supported_inputs)
            raise ValueError(
                f"Expected inputs={supported} for {type(self).__name__}, got {inputs!r}."
            )
        self.dim = integer(dim, "dim")
        self.inputs = inputs
        self._cache = DistanceCache()
        self._shared: dict[tuple[int, bool], tuple[Tensor, Tensor]] | None = None

    @abstractmethod
    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent each cloud by one vector.

        Args:
            points: A ``C x n x atom_dim`` tensor of atoms; a Gaussian is a single one.
            weights: A ``C x n`` tensor of weights that sum to one in each cloud.

        Returns:
            A ``C x D`` tensor.
        """

    def adapt(self, rows: Tensor) -> None:
        """Set from the first rows seen what was left open at construction; here nothing.

        Args:
            rows: A ``batch_shape x N x width`` tensor. :class:`DistributionGP` gives the training
                rows when it is built.
        """

    @property
    def atom_dim(self) -> int:
        """Numbers that an atom has besides its weight: ``d``, for Gaussians ``d + d*d``."""
        return self.dim if self.inputs == "clouds" else self.dim + self.dim**2

    @property
    def atom_columns(self) -> int | None:
        """Columns that an atom takes in a row, or ``None`` where a row is one atom without weight."""
        return None if self.inputs == "gaussians" else self.atom_dim + 1

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Squared distances of all pairs of representations.

        Args:
            r1: A ``batch_shape x N x D`` tensor.
            r2: A ``batch_shape x M x D`` tensor, which may be ``r1`` itself.

        Returns:
            A ``batch_shape x N x M`` tensor.
        """
        return squared_euclidean(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Squared distances of corresponding representations, ``batch_shape x N``."""
        return (r1 - r2).square().sum(-1)

    def chunk_size(self, num_atoms: int) -> int:
        """How many clouds of ``num_atoms`` atoms are represented at a time."""
        return max(1, self._chunk_elements // (num_atoms * (self.atom_dim + 1)))

    def forward(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        """The same as :meth:`squared`."""
        return self.squared(x1, x2, diag=diag)

    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        """Squared Hilbert distances between clouds.

        Args:
            x1: A ``batch_shape x N x m*(d+1)`` tensor of rows.
            x2: A ``batch_shape x M x m'*(d+1)`` tensor of rows. Default: ``x1``.
            diag: Whether only the distances of corresponding clouds are wanted; then ``M = N``.

        Returns:
            A ``batch_shape x N x M`` tensor, or ``batch_shape x N`` with ``diag``. It is never
            negative, and exactly zero where a cloud meets itself.

        Raises:
            ValueError: If the width of the rows does not fit ``dim``, a weight is negative or not
                finite, or a row has no weight.
        """
        x2 = x1 if x2 is None else x2
        for rows in (x1, x2):
            self._split(rows)
            if rows.dim() < 2:
                raise ValueError(
                    f"Expected rows as a tensor of shape (..., N, m*(d+1)), got {tuple(rows.shape)}."
                )
        equal = x1 is x2 or (x1.shape == x2.shape and torch.equal(x1.detach(), x2.detach()))
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        num1, num2 = x1.shape[-2], x2.shape[-2]
        shape = batch_shape + ((num1,) if diag else (num1, num2))
        if 0 in (x1.numel(), x2.numel()):
            return self._zeros(x1, x2).expand(shape).clone()
        self._adapt(x1)
        if equal and (diag or num1 == 1):
            _check_weights(self._split(drop_copies(x1))[1])
            return self._zeros(x1, x2).expand(shape).clone()
        tracked = self._tracks_gradient(x1) or self._tracks_gradient(x2)
        if diag:
            squared = self.compare_paired(self._representation(x1), self._representation(x2))
            if tracked and x1.shape[-1] == x2.shape[-1]:
                squared = squared.masked_fill((x1 == x2).all(-1), 0)
        elif tracked:
            squared = self._tracked(x1, x2)
        elif equal:
            squared = self._within(x1)
        else:
            squared = self._between(x1, x2)
        return squared.expand(shape)

    @property
    def euclidean(self) -> bool:
        """Whether distances are the Euclidean ones of the representations."""
        return True

    @property
    def embed(self) -> Callable[[Tensor], Tensor]:
        """Features of clouds whose Euclidean distance is the distance.

        A function of a ``batch_shape x N x m*(d+1)`` tensor of rows that returns a
        ``batch_shape x N x D`` tensor. Absent (``AttributeError``) where no finite number of
        features will do.
        """
        if not self.euclidean:
            raise AttributeError
        return self._embed

    def __getattr__(self, name: str) -> Any:
        if name == "embed":
            raise AttributeError(
                f"{self!r} is no Euclidean distance of finitely many features, so that it has no "
                "embed. Use squared, which gives its squared distances."
            )
        return super().__getattr__(name)

    def _embed(self, rows: Tensor) -> Tensor:
        self._adapt(rows)
        representation = self._representation(rows)
        return representation.expand(*rows.shape[:-1], -1).clone()

    def squared_norms(self, rows: Tensor) -> Tensor:
        """Squared distances to the origin of inner products, here all mass of a cloud at zero.

        Args:
            rows: A ``batch_shape x N x m*(d+1)`` tensor.

        Returns:
            A ``batch_shape x N`` tensor.
        """
        first = rows.detach().reshape(-1, rows.shape[-1])[:1]
        if self.atom_columns is None:
            return self.squared(rows, torch.zeros_like(first)).squeeze(-1)
        points, weights = self._split(first)
        return self.squared(rows, join_rows(torch.zeros_like(points), weights)).squeeze(-1)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Represent each tensor of rows once within this context, its gradient included.

        For a computation that compares the same tensor object several times and is differentiated
        as a whole, as the covariances of one posterior are.
        """
        self._shared = {}
        try:
            yield
        finally:
            self._shared = None

    def clear_cache(self) -> None:
        """Forget all clouds."""
        self._cache = DistanceCache()

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Atoms, ``batch_shape x N x m x atom_dim``, and weights, ``batch_shape x N x m``."""
        if self.atom_columns is not None:
            return split_rows(rows, self.atom_dim)
        if rows.dim() == 0 or rows.shape[-1] != self.atom_dim:
            raise ValueError(
                f"Expected rows of width d + d*d = {self.atom_dim} (a mean and a row-major "
                f"covariance), got a tensor of shape {tuple(rows.shape)}."
            )
        return rows.unsqueeze(-2), rows.new_ones(*rows.shape[:-1], 1)

    def _adapt(self, rows: Tensor) -> None:
        with torch.no_grad():
            self.adapt(drop_copies(rows.detach()))

    def _tracks_gradient(self, rows: Tensor) -> bool:
        return torch.is_grad_enabled() and (
            rows.requires_grad or any(parameter.requires_grad for parameter in self.parameters())
        )

    def _zeros(self, *sets: Tensor) -> Tensor:
        """Zero, with a gradient of zero in all that distances between sets of rows depend on."""
        tensors = (*sets, *self.parameters())
        tied = sum(tensor.unsqueeze(-1)[..., :0].sum() for tensor in tensors)
        return sets[0].new_zeros(1) + tied

    def _tracked(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances with gradients, which are zero where a cloud meets itself."""
        r1 = self._representation(x1)
        if x1 is x2:
            return self.compare_all(r1, r1)
        if not self._tracks_gradient(x2):
            squared = self._to_known(x1, r1, x2)
        else:
            squared = self.compare_all(r1, self._representation(x2))
        # A representation may be rounded in another way where it has a gradient.
        return squared.masked_fill(equal_rows(x1, x2), 0)

    def _within(self, rows: Tensor) -> Tensor:
        """Squared distances of fixed clouds to each other."""
        rows = drop_copies(rows)
        if rows.dim() > 2:
            representation = self._representation(rows)
            return self.compare_all(representation, representation)
        self._cache.refresh([*self.parameters(), *self.buffers()])
        entry = self._cache.find(rows)
        if entry is None:
            representation = self._representation(rows)
            squared = self.compare_all(*[representation] * 2)
            if torch.is_inference_mode_enabled():
                return squared  # inference tensors cannot serve autograd later
            entry = Entry(rows.clone(), representation, squared)
            self._cache.add(entry)
        return entry.squared.clone()

    def _between(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances of fixed clouds to others, by blocks so that memory is bounded."""
        if drop_copies(x2).dim() > 2 or x1.shape[:-1].numel() <= self._block_rows:
            return self._to_known(x1, self._representation(x1), x2)
        blocks = x1.flatten(0, -2).split(self._block_rows)
        squared = torch.cat([self._to_known(x, self._representation(x), x2) for x in blocks])
        return squared.unflatten(0, x1.shape[:-1])

    def _to_known(self, x1: Tensor, r1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances to fixed clouds, some of which the cache may know."""
        x2 = drop_copies(x2)
        known = self._cached_prefix(x2)
        if known is None:
            if x1.shape == x2.shape and torch.equal(x1.detach(), x2.detach()):
                # The same clouds, but x2 is fixed: a gradient goes through one side only.
                return self.compare_all(r1, r1.detach() if r1.requires_grad else r1)
            return self.compare_all(r1, self._representation(x2))
        to_prefix = self.compare_all(r1, known.representation)
        to_rest = self._to_known(x1, r1, x2[..., known.rows.shape[0] :, :])
        batch_shape = torch.broadcast_shapes(to_prefix.shape[:-1], to_rest.shape[:-1])
        return torch.cat(
            [to_prefix.expand(*batch_shape, -1), to_rest.expand(*batch_shape, -1)], dim=-1
        )

    def _cached_prefix(self, rows: Tensor) -> Entry | None:
        self._cache.refresh([*self.parameters(), *self.buffers()])
        return self._cache.find_prefix(rows)

    def _representation(self, rows: Tensor) -> Tensor:
        """The representation of ``rows``, shared and cached; expanded batch axes have size one."""
        tracked = self._tracks_gradient(rows)
        key = (id(rows), tracked)
        shared = self._shared  # another thread may end its sharing meanwhile
        if shared is not None and key in shared:
            return shared[key][1]
        if tracked:
            representation = self._represent_rows(rows)
        else:
            representation = self._represent_fixed(drop_copies(rows))
        if shared is not None:
            shared[key] = (rows, representation)
        return representation

    def _represent_fixed(self, rows: Tensor) -> Tensor:
        self._cache.refresh([*self.parameters(), *self.buffers()])
        entry = self._cache.find(rows)
        if entry is not None:
            return entry.representation
        with torch.no_grad():
            return self._represent_rows(rows)

    def _represent_rows(self, rows: Tensor) -> Tensor:
        points, weights = self._split(rows)
        batch_shape, num_atoms = weights.shape[:-1], weights.shape[-1]
        _check_weights(weights)
        points = points.reshape(-1, num_atoms, self.atom_dim)
        weights = weights.reshape(-1, num_atoms)
        weights = weights / weights.sum(-1, keepdim=True)
        size = self.chunk_size(num_atoms)
        if len(points) <= size or self._tracks_gradient(rows):
            parts = map(self.represent, points.split(size), weights.split(size))
            return torch.cat(list(parts)).unflatten(0, batch_shape)
        out: Tensor | None = None
        for chunk in self._chunks(weights, size):
            part = self.represent(points[chunk], weights[chunk])
            out = _empty(len(points), part) if out is None else out
            put_rows(out, chunk, part)
        assert out is not None
        return out.unflatten(0, batch_shape)

    def _chunks(self, weights: Tensor, size: int) -> Iterator[slice | Tensor]:
        """Indices of the clouds that are represented together."""
        sizes = (weights > 0).sum(-1)
        if self._trims_padding and bool((sizes != sizes[0]).any()):
            yield from sizes.argsort().split(size)
        else:
            yield from (slice(start, start + size) for start in range(0, len(weights), size))

    def __setattr__(self, name: str, value: Any) -> None:
        # Distances with another setting are others; what is remembered knows only tensors.
        is_setting = not name.startswith("_") and name != "training"
        if is_setting and not (name in self.__dict__ and self.__dict__[name] is value):
            self.clear_cache()
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles carry the distance, not what it remembers.
        return {**self.__dict__, "_cache": DistanceCache(), "_shared": None}


def _empty(rows: int, like: Tensor) -> Tensor:
    """Memory for many rows like those given."""
    shape = (rows, like.shape[-1])
    if like.device.type != "cpu":
        return like.new_empty(shape)
    # NumPy asks for huge pages, without which the first touch of the memory costs as much as a sort.
    return torch.from_numpy(np.empty(shape, dtype=like.numpy().dtype))


def _check_weights(weights: Tensor) -> None:
    bad = ~((weights >= 0).all(-1) & (weights.sum(-1) > 0) & weights.isfinite().all(-1))
    if bool(bad.any()):
        where = bad.nonzero()[0].tolist()
        raise ValueError(
            "Expected rows with finite, non-negative weights that are not all zero, but row "
            f"{where[0] if len(where) == 1 else tuple(where)} has the weights "
            f"{weights[bad][0].tolist()}. Rows come from PointClouds.pack(); scale coordinates with "
            "PointClouds.normalize, never the columns of rows."
        )
