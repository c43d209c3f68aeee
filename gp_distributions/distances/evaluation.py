"""Evaluate distances in chunks and blocks, with gradients, and reuse remembered results.

Each cloud is represented once, and representations are compared. Representations without a gradient are
remembered and looked up by the content of their rows (:mod:`gp_distributions.rows.memory`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from gp_distributions.context import setting
from gp_distributions.distances.fixed_parameters import with_fixed_parameters
from gp_distributions.numerics.pairwise import squared_euclidean_to
from gp_distributions.numerics.single_thread import put_rows
from gp_distributions.rows.clouds import drop_copies, equal_rows
from gp_distributions.rows.columns import selecting_once
from gp_distributions.rows.contents import check_content
from gp_distributions.rows.layout import Block, check_weights, chunks, normalized
from gp_distributions.rows.memory import Memory, fingerprint, same_tensor


class Distance(Protocol):
    """The attributes and methods of a distance that this module uses."""

    block_rows: int
    trims_padding: bool
    training: bool
    memory: Memory

    @property
    def block(self) -> Block: ...
    @property
    def euclidean(self) -> bool: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def adapt(self, rows: Tensor) -> None: ...
    def chunk_size(self, num_atoms: int) -> int: ...
    def represent(self, points: Tensor, weights: Tensor) -> Tensor: ...
    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor: ...
    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor: ...
    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor: ...


# Size in bytes of the representations that are compared with kept ones at a time. Their memory is used
# again; to provide new memory would take as long as a third of the representations.
_BLOCK_BYTES = 2**24

DistanceT = TypeVar("DistanceT", bound=Distance)
LookUp = Callable[[Distance, Tensor, Tensor, bool], Tensor | None]

_shared: ContextVar[dict[tuple[int, int, bool], tuple[Distance, Tensor, Tensor]]]
_shared = ContextVar("shared")
_look_up: ContextVar[LookUp | None] = ContextVar("look_up", default=None)
_borrower: ContextVar[Distance | None] = ContextVar("borrower", default=None)
_learning: ContextVar[bool] = ContextVar("learning", default=False)


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Represent each tensor of rows once within a ``with`` block, in the current thread only.

    Representations keep their gradients, and tensors are told apart by identity. Use this for a
    computation that compares the same tensors several times and is differentiated as a whole,
    such as the covariances of one posterior. Nested blocks share the representations of the outermost.
    """
    with setting(_shared, _shared.get({})), selecting_once():
        yield


@contextlib.contextmanager
def borrowing(distance: Distance) -> Iterator[None]:
    """Return remembered squared distances of ``distance`` without a copy within a ``with`` block.

    The caller must not change them.
    """
    with setting(_borrower, distance):
        yield


@contextlib.contextmanager
def learning() -> Iterator[None]:
    """Track gradients of parameters of distances in evaluation mode, too, within a ``with`` block."""
    with setting(_learning, True):
        yield


def settled(distance: DistanceT) -> DistanceT:
    """Return a distance as it is evaluated now: its parameters are constants in evaluation mode.

    Otherwise predictions and searches would represent the training clouds anew each time.
    """
    learned = distance.training or _learning.get() or not torch.is_grad_enabled()
    if learned or not any(p.requires_grad for p in distance.parameters()):
        return distance
    return with_fixed_parameters(distance)


@contextlib.contextmanager
def looking_up(look_up: LookUp | None) -> Iterator[None]:
    """Look up squared distances before computing them, within a ``with`` block and the current thread.

    Args:
        look_up: Function of a distance, two sets of rows, and whether to compute only the diagonal. It
            returns the squared distances if they are known, else ``None``. Pass ``None`` instead of a
            function to turn off the look-up of an outer block.
    """
    with setting(_look_up, look_up):
        yield


def squared_distances(distance: Distance, x1: Tensor, x2: Tensor, *, diag: bool) -> Tensor:
    """Look up or compute the squared distances between rows; see :meth:`Distance.squared`."""
    look_up = _look_up.get()
    known = None if look_up is None else look_up(distance, x1, x2, diag)
    return _Evaluation(distance).squared(x1, x2, diag=diag) if known is None else known


def check_rows(distance: Distance, rows: Tensor) -> None:
    """Check that a distance can read rows.

    Raises:
        TypeError: If they are not a dense tensor, or one within a transform of ``torch.func``.
        ValueError: If they have another width, or no axis that counts them.
    """
    if not isinstance(rows, Tensor) or rows.layout != torch.strided:
        raise TypeError(
            "Expected rows as a dense tensor, got "
            f"{rows.layout if isinstance(rows, Tensor) else type(rows).__name__}. Pass clouds.pack()."
        )
    check_content(rows)
    distance.block.split(rows)
    if rows.dim() < 2:
        raise ValueError(
            f"Expected rows as a tensor of shape (..., N, m*(d+1)), got {tuple(rows.shape)}."
        )


def representations(distance: Distance, rows: Tensor) -> Tensor:
    """Adapt a distance to rows and represent them.

    The result lacks the expanded batch axes of rows that have no gradient, but broadcasts with them.
    """
    adapt(distance, rows)
    return _Evaluation(distance).representation(rows)


def embedding(distance: Distance, rows: Tensor) -> Tensor:
    """Represent rows as a tensor with all batch axes that nothing else holds."""
    check_rows(distance, rows)
    representation = representations(distance, rows)
    features = representation.expand(*rows.shape[:-1], -1)
    kept = bool(_shared.get({})) or any(
        known.representation is representation for known in distance.memory.values()
    )
    return features.clone() if kept or features.shape != representation.shape else features


def adapt(distance: Distance, rows: Tensor) -> None:
    """Let a distance choose the settings that depend on the first rows it sees."""
    with torch.no_grad():
        distance.adapt(drop_copies(rows.detach()))


def represent_rows(distance: Distance, rows: Tensor, factors: Tensor | None = None) -> Tensor:
    """Represent rows, whose atoms are multiplied by factors, in chunks that fit into the cache."""
    distance = settled(distance)

    def represent(points: Tensor, weights: Tensor) -> Tensor:
        return distance.represent(points if factors is None else points * factors, weights)

    points, weights = distance.block.split(rows)
    batch_shape, num_atoms = weights.shape[:-1], weights.shape[-1]
    points = points.reshape(-1, num_atoms, points.shape[-1])
    size = distance.chunk_size(num_atoms)
    tracked = factors is not None and factors.requires_grad and torch.is_grad_enabled()
    if len(points) <= size or tracked or _tracks(distance, rows):
        weights = normalized(weights).reshape(-1, num_atoms)
        parts = map(represent, points.split(size), weights.split(size))
        return torch.cat(list(parts)).unflatten(0, batch_shape)
    check_weights(weights)
    weights = weights.reshape(-1, num_atoms)
    out: Tensor | None = None
    with torch.no_grad():
        for chunk in chunks(weights, size, by_atoms=distance.trims_padding):
            part = represent(points[chunk], normalized(weights[chunk]))
            out = _empty(len(points), part) if out is None else out
            put_rows(out, chunk, part)
    assert out is not None
    return out.unflatten(0, batch_shape)


def keep(distance: Distance, rows: Tensor) -> None:
    """Remember the representation of rows to which many others will be compared, without gradients.

    Args:
        distance: The distance.
        rows: An ``N x width`` tensor.
    """
    evaluation = _Evaluation(distance)
    known = distance.memory.recall(evaluation.fingerprint, rows)
    if known is None or known.compare is None:
        with torch.no_grad():
            fixed = distance.represent_rows(rows) if known is None else known.representation
            squared = None if known is None else known.squared
            known = _Clouds(fixed, squared, _comparison(distance, fixed))
        distance.memory.remember(evaluation.fingerprint, rows, known)


def _comparison(distance: Distance, r2: Tensor) -> Callable[[Tensor], Tensor]:
    """Return ``compare_all`` as a function of the first representations."""
    prepared = squared_euclidean_to(r2) if distance.euclidean else None

    def compare(r1: Tensor) -> Tensor:
        if prepared is None or r1.shape[-1] != r2.shape[-1]:
            return distance.compare_all(r1, r2)
        return prepared(r1)

    return compare


class _Clouds(NamedTuple):
    """What is known of a set of clouds.

    Attributes:
        representation: Their representations.
        squared: The squared distances between them, or None.
        compare: Function of other representations that compares them with these; None unless kept.
    """

    representation: Tensor
    squared: Tensor | None
    compare: Callable[[Tensor], Tensor] | None = None


@dataclass
class _Evaluation:
    """A single evaluation of a distance, during which its settings and parameters do not change."""

    distance: Distance

    @cached_property
    def settled(self) -> Distance:
        """The distance that represents and compares; gradients flow through it."""
        return settled(self.distance)

    @cached_property
    def fingerprint(self) -> Hashable:
        """Fingerprint of the distance with its current settings, parameters and buffers."""
        return fingerprint(self.distance)

    def squared(self, x1: Tensor, x2: Tensor, *, diag: bool) -> Tensor:
        distance = self.distance
        for rows in (x1, x2):
            check_rows(distance, rows)
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        num1, num2 = x1.shape[-2], x2.shape[-2]
        shape = batch_shape + ((num1,) if diag else (num1, num2))
        if 0 in (x1.numel(), x2.numel()):
            return self.zeros(x1, x2).expand(shape).clone()
        adapt(distance, x1)
        equal = x1 is x2 or same_tensor(x1.detach(), x2.detach())
        tracked = any(_tracks(self.settled, rows) for rows in (x1, x2))
        if equal and (diag or num1 == 1):
            check_weights(distance.block.split(drop_copies(x1))[1])
            return self.zeros(x1, x2).expand(shape).clone()
        if diag:
            squared = self.settled.compare_paired(self.representation(x1), self.representation(x2))
            if tracked and x1.shape[-1] == x2.shape[-1]:
                squared = squared.masked_fill((x1 == x2).all(-1), 0)
        elif tracked:
            squared = self.differentiable(x1, x2)
        elif equal:
            squared = self.within(x1)
        else:
            squared = self.between(x1, x2)
        return squared.expand(shape)

    def zeros(self, *sets: Tensor) -> Tensor:
        """Return a zero whose gradients with respect to the rows and the parameters are zero."""
        tensors = (*sets, *self.settled.parameters())
        tied = sum(tensor.unsqueeze(-1)[..., :0].sum() for tensor in tensors)
        return sets[0].new_zeros(1) + tied

    def differentiable(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Compute squared distances with gradients; between a cloud and itself, both are zero."""
        r1 = self.representation(x1)
        if x1 is x2:
            return self.settled.compare_all(r1, r1)
        if not _tracks(self.settled, x2):
            squared = self.to_known(x1, r1, x2)
        else:
            squared = self.settled.compare_all(r1, self.representation(x2))
        # Representations with and without a gradient may be rounded differently.
        return squared.masked_fill(equal_rows(x1, x2), 0)

    @torch.no_grad()
    def within(self, rows: Tensor) -> Tensor:
        """Compute squared distances between all clouds of one set without gradients."""
        rows = drop_copies(rows)
        if rows.dim() > 2:
            return self.distance.compare_all(*[self.representation(rows)] * 2)
        known = self.distance.memory.recall(self.fingerprint, rows)
        squared = None if known is None else known.squared
        if squared is None:
            representation = self.representation(rows)
            squared = self.distance.compare_all(representation, representation)
            self.distance.memory.remember(self.fingerprint, rows, _Clouds(representation, squared))
        return squared if _borrower.get() is self.distance else squared.clone()

    @torch.no_grad()
    def between(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Compute squared distances between two sets without gradients, in blocks to bound memory."""
        kept = self.distance.memory.recall(self.fingerprint, x2) if x2.dim() == 2 else None
        if kept is not None and kept.compare is not None and _shared.get(None) is None:
            features = kept.representation
            size = max(1, _BLOCK_BYTES // (features.shape[-1] * features.element_size()))
            blocks = x1.flatten(0, -2).split(size)
            squared = torch.cat([kept.compare(self.distance.represent_rows(x)) for x in blocks])
            return squared.unflatten(0, x1.shape[:-1])
        if drop_copies(x2).dim() > 2 or x1.shape[:-1].numel() <= self.distance.block_rows:
            return self.to_known(x1, self.representation(x1), x2)
        blocks = x1.flatten(0, -2).split(self.distance.block_rows)
        squared = torch.cat([self.to_known(x, self.representation(x), x2) for x in blocks])
        return squared.unflatten(0, x1.shape[:-1])

    def to_known(self, x1: Tensor, r1: Tensor, x2: Tensor) -> Tensor:
        """Compute squared distances between the clouds ``x1`` and clouds ``x2`` without gradients.

        ``r1`` are the representations of ``x1``. If the first rows of ``x2`` are remembered, only the
        other rows are represented.
        """
        x2 = drop_copies(x2)
        memory = self.distance.memory
        # Rows that are remembered as a whole are compared as a whole, so that results have the same
        # bits whether or not the first of them are remembered, too.
        whole = x2.dim() == 2 and memory.recall(self.fingerprint, x2) is not None
        known = None if whole else memory.recall_prefix(self.fingerprint, x2)
        if known is None:
            if x1.shape == x2.shape and torch.equal(x1.detach(), x2.detach()):
                # The clouds are equal, but x2 is fixed: only x1 has a gradient.
                return self.settled.compare_all(r1, r1.detach() if r1.requires_grad else r1)
            return self.settled.compare_all(r1, self.representation(x2))
        to_prefix = self.settled.compare_all(r1, known.value.representation)
        to_rest = self.to_known(x1, r1, x2[..., known.rows.shape[0] :, :])
        shape = torch.broadcast_shapes(to_prefix.shape[:-1], to_rest.shape[:-1])
        return torch.cat([to_prefix.expand(*shape, -1), to_rest.expand(*shape, -1)], dim=-1)

    def representation(self, rows: Tensor) -> Tensor:
        """Represent rows; within :func:`sharing`, represent each tensor only once."""
        tracked, shared = _tracks(self.settled, rows), _shared.get({})
        key = (id(self.distance), id(rows), tracked)
        if key not in shared:
            represent = self.settled.represent_rows if tracked else self.fixed
            shared[key] = self.distance, rows, represent(rows)  # keeps the ids from being reused
        return shared[key][-1]

    def fixed(self, rows: Tensor) -> Tensor:
        """Recall the representation of rows without gradients, or compute it."""
        rows = drop_copies(rows)
        known = self.distance.memory.recall(self.fingerprint, rows) if rows.dim() == 2 else None
        if known is not None:
            return known.representation
        with torch.no_grad():
            return self.distance.represent_rows(rows)


def _tracks(distance: Distance, rows: Tensor) -> bool:
    """Return whether the representations of rows by a settled distance need a gradient."""
    tensors = (rows, *distance.parameters())
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _empty(rows: int, like: Tensor) -> Tensor:
    """Allocate an uninitialised tensor of ``rows`` rows with the width, dtype and device of ``like``."""
    shape = (rows, like.shape[-1])
    if like.device.type != "cpu":
        return like.new_empty(shape)
    # NumPy requests huge pages; without them, the first access to the memory takes as long as a sort.
    return torch.from_numpy(np.empty(shape, dtype=like.numpy().dtype))
