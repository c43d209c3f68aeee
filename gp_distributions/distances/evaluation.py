"""How distances are evaluated: in chunks and blocks, with gradients, and from memory.

Each cloud is represented once, and representations are compared. What is represented without a gradient
is remembered by content (:mod:`gp_distributions.rows.memory`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gp_distributions.numerics.single_thread import put_rows
from gp_distributions.rows.clouds import drop_copies, equal_rows
from gp_distributions.rows.layout import Block, check_weights, chunks, normalized
from gp_distributions.rows.memory import Memory, fingerprint, same_tensor


class Comparison(Protocol):
    """What the evaluation of a distance needs of it."""

    block_rows: int
    trims_padding: bool
    memory: Memory

    @property
    def block(self) -> Block: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def adapt(self, rows: Tensor) -> None: ...
    def chunk_size(self, num_atoms: int) -> int: ...
    def represent(self, points: Tensor, weights: Tensor) -> Tensor: ...
    def represent_rows(self, rows: Tensor) -> Tensor: ...
    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor: ...
    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor: ...


LookUp = Callable[[Comparison, Tensor, Tensor, bool], Tensor | None]

_shared: ContextVar[dict[tuple[int, int, bool], tuple[object, Tensor, Tensor]] | None] = ContextVar(
    "shared", default=None
)
_look_up: ContextVar[LookUp | None] = ContextVar("look_up", default=None)


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Represent each tensor of rows once within this context, its gradient included.

    For a computation that compares the same tensor object several times and is differentiated as a
    whole, such as the covariances of one posterior. Contexts may be nested; other threads do not see
    them.
    """
    if _shared.get() is not None:
        yield
        return
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


@contextlib.contextmanager
def looking_up(look_up: LookUp | None) -> Iterator[None]:
    """Ask a function for squared distances first, within this context and thread.

    Args:
        look_up: Function of a distance, two sets of rows and whether only the diagonal is wanted. It
            returns squared distances that are known, or ``None``.
    """
    token = _look_up.set(look_up)
    try:
        yield
    finally:
        _look_up.reset(token)


def squared_distances(distance: Comparison, x1: Tensor, x2: Tensor, *, diag: bool) -> Tensor:
    """Squared distances of rows, as :meth:`Distance.squared` describes them."""
    look_up = _look_up.get()
    known = None if look_up is None else look_up(distance, x1, x2, diag)
    return _Evaluation(distance).squared(x1, x2, diag=diag) if known is None else known


def representations(distance: Comparison, rows: Tensor) -> Tensor:
    """Representations of rows; batch axes along which rows were only expanded have size one."""
    return _Evaluation(distance).representation(rows)


def adapt(distance: Comparison, rows: Tensor) -> None:
    """Show rows to a distance, whose open settings the first rows determine."""
    with torch.no_grad():
        distance.adapt(drop_copies(rows.detach()))


def represent_rows(distance: Comparison, rows: Tensor) -> Tensor:
    """Represent rows in chunks that fit the processor's cache."""
    points, weights = distance.block.split(rows)
    batch_shape, num_atoms = weights.shape[:-1], weights.shape[-1]
    points = points.reshape(-1, num_atoms, points.shape[-1])
    weights = normalized(weights).reshape(-1, num_atoms)
    size = distance.chunk_size(num_atoms)
    if len(points) <= size or _tracks_gradient(distance, rows):
        parts = map(distance.represent, points.split(size), weights.split(size))
        return torch.cat(list(parts)).unflatten(0, batch_shape)
    out: Tensor | None = None
    for chunk in chunks(weights, size, by_atoms=distance.trims_padding):
        part = distance.represent(points[chunk], weights[chunk])
        out = _empty(len(points), part) if out is None else out
        put_rows(out, chunk, part)
    assert out is not None
    return out.unflatten(0, batch_shape)


@dataclass(frozen=True)
class _Clouds:
    """Clouds that were compared with each other."""

    representation: Tensor
    squared: Tensor


@dataclass
class _Evaluation:
    """One evaluation of a distance."""

    distance: Comparison

    @cached_property
    def fingerprint(self) -> Hashable:
        """What identifies the distance, as it is now."""
        assert isinstance(self.distance, torch.nn.Module)
        return fingerprint(self.distance)

    def squared(self, x1: Tensor, x2: Tensor, *, diag: bool) -> Tensor:
        distance = self.distance
        for rows in (x1, x2):
            distance.block.split(rows)
            if rows.dim() < 2:
                raise ValueError(
                    "Expected rows as a tensor of shape (..., N, m*(d+1)), got "
                    f"{tuple(rows.shape)}."
                )
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        num1, num2 = x1.shape[-2], x2.shape[-2]
        shape = batch_shape + ((num1,) if diag else (num1, num2))
        if 0 in (x1.numel(), x2.numel()):
            return self.zeros(x1, x2).expand(shape).clone()
        adapt(distance, x1)
        equal = x1 is x2 or same_tensor(x1.detach(), x2.detach())
        tracked = self.tracks(x1) or self.tracks(x2)
        if equal and (diag or num1 == 1):
            check_weights(distance.block.split(drop_copies(x1))[1])
            return self.zeros(x1, x2).expand(shape).clone()
        if diag:
            squared = distance.compare_paired(self.representation(x1), self.representation(x2))
            if tracked and x1.shape[-1] == x2.shape[-1]:
                squared = squared.masked_fill((x1 == x2).all(-1), 0)
        elif tracked:
            squared = self.differentiable(x1, x2)
        elif equal:
            squared = self.within(x1)
        else:
            squared = self.between(x1, x2)
        return squared.expand(shape)

    def tracks(self, rows: Tensor) -> bool:
        return _tracks_gradient(self.distance, rows)

    def zeros(self, *sets: Tensor) -> Tensor:
        """Zero, with a gradient of zero in all that distances between sets of rows depend on."""
        tensors = (*sets, *self.distance.parameters())
        tied = sum(tensor.unsqueeze(-1)[..., :0].sum() for tensor in tensors)
        return sets[0].new_zeros(1) + tied

    def differentiable(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances with gradients, which are zero where a cloud meets itself."""
        r1 = self.representation(x1)
        if x1 is x2:
            return self.distance.compare_all(r1, r1)
        if not self.tracks(x2):
            squared = self.to_known(x1, r1, x2)
        else:
            squared = self.distance.compare_all(r1, self.representation(x2))
        # A representation may be rounded in another way where it has a gradient.
        return squared.masked_fill(equal_rows(x1, x2), 0)

    def within(self, rows: Tensor) -> Tensor:
        """Squared distances of fixed clouds to each other."""
        rows = drop_copies(rows)
        if rows.dim() > 2:
            return self.distance.compare_all(*[self.representation(rows)] * 2)
        known = self.distance.memory.recall(self.fingerprint, rows)
        if known is None:
            representation = self.representation(rows)
            known = _Clouds(
                representation, self.distance.compare_all(representation, representation)
            )
            self.distance.memory.remember(self.fingerprint, rows, known)
        squared: Tensor = known.squared
        return squared.clone()

    def between(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances of fixed clouds to others, by blocks so that memory is bounded."""
        if drop_copies(x2).dim() > 2 or x1.shape[:-1].numel() <= self.distance.block_rows:
            return self.to_known(x1, self.representation(x1), x2)
        blocks = x1.flatten(0, -2).split(self.distance.block_rows)
        squared = torch.cat([self.to_known(x, self.representation(x), x2) for x in blocks])
        return squared.unflatten(0, x1.shape[:-1])

    def to_known(self, x1: Tensor, r1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances to fixed clouds, the first of which may be remembered."""
        x2 = drop_copies(x2)
        known = self.distance.memory.recall_prefix(self.fingerprint, x2)
        if known is None:
            if x1.shape == x2.shape and torch.equal(x1.detach(), x2.detach()):
                # The same clouds, but x2 is fixed: a gradient goes through one side only.
                return self.distance.compare_all(r1, r1.detach() if r1.requires_grad else r1)
            return self.distance.compare_all(r1, self.representation(x2))
        to_prefix = self.distance.compare_all(r1, known.value.representation)
        to_rest = self.to_known(x1, r1, x2[..., known.rows.shape[0] :, :])
        batch_shape = torch.broadcast_shapes(to_prefix.shape[:-1], to_rest.shape[:-1])
        return torch.cat(
            [to_prefix.expand(*batch_shape, -1), to_rest.expand(*batch_shape, -1)], dim=-1
        )

    def representation(self, rows: Tensor) -> Tensor:
        tracked = self.tracks(rows)
        key = (id(self.distance), id(rows), tracked)
        shared = _shared.get()
        if shared is not None and key in shared:
            return shared[key][-1]
        represent = self.distance.represent_rows if tracked else self.fixed
        representation = represent(rows)
        if shared is not None:  # what is kept keeps its id
            shared[key] = (self.distance, rows, representation)
        return representation

    def fixed(self, rows: Tensor) -> Tensor:
        rows, known = drop_copies(rows), None
        if rows.dim() == 2:
            known = self.distance.memory.recall(self.fingerprint, rows)
        if known is not None:
            representation: Tensor = known.representation
            return representation
        with torch.no_grad():
            return self.distance.represent_rows(rows)


def _tracks_gradient(distance: Comparison, rows: Tensor) -> bool:
    return torch.is_grad_enabled() and (
        rows.requires_grad or any(parameter.requires_grad for parameter in distance.parameters())
    )


def _empty(rows: int, like: Tensor) -> Tensor:
    """Memory for many rows like those given."""
    shape = (rows, like.shape[-1])
    if like.device.type != "cpu":
        return like.new_empty(shape)
    # NumPy asks for huge pages, without which the first touch of the memory costs as much as a sort.
    return torch.from_numpy(np.empty(shape, dtype=like.numpy().dtype))
