"""Evaluation of distances: chunks, blocks, gradients, and what rows hold already.

Distances between clouds are computed in two steps: each cloud is represented once, and then
representations are compared. Representations without gradients are held by :class:`EmbeddedRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol, TypeVar

import gpytorch
import numpy as np
import torch
from torch import Tensor

from gp_distributions.context import setting
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, rows_of
from gp_distributions.distances.recent_rows import RecentRows
from gp_distributions.numerics.linear_algebra import put_rows
from gp_distributions.numerics.pairwise import squared_euclidean_to
from gp_distributions.rows.clouds import (
    drop_copies,
    drop_padding,
    equal_rows,
    expand_batches,
    same_tensor,
)
from gp_distributions.rows.contents import check_content, is_tracked
from gp_distributions.rows.layout import Block, check_weights, chunks, normalized


class Distance(Protocol):
    """What the evaluation needs to know of a distance."""

    block_rows: int
    training: bool
    recent: RecentRows

    @property
    def block(self) -> Block: ...
    @property
    def euclidean(self) -> bool: ...
    @property
    def trims_padding(self) -> bool: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def adapt(self, rows: Tensor) -> None: ...
    def chunk_size(self, num_atoms: int) -> int: ...
    def represent(self, points: Tensor, weights: Tensor) -> Tensor: ...
    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor: ...
    def represent_held(self, rows: EmbeddedRows) -> Tensor: ...
    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor: ...
    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor: ...


# Largest size in bytes of representations that are always prepared for comparisons, which copies them:
# beside few new clouds, that takes as long as the comparison.
_PREPARED_BYTES = 2**27
# Size in bytes of the representations that are compared with prepared ones at a time. Their memory is
# used again; to provide new memory would take as long as a third of the representations.
_BLOCK_BYTES = 2**24

DistanceT = TypeVar("DistanceT", bound=Distance)
LookUp = Callable[[Distance, Tensor, Tensor | None, bool], Tensor | None]
_look_up: ContextVar[LookUp | None] = ContextVar("look_up", default=None)


def looking_up(look_up: LookUp | None) -> AbstractContextManager[object]:
    """Look up squared distances before computing them, within a ``with`` block and the current thread.

    Args:
        look_up: Function of a distance, two sets of rows, and whether to compute only the diagonal. It
            returns the squared distances if they are known, else ``None``; or, with ``None`` instead
            of the second set, the representations of the first. Pass ``None`` instead of a function to
            turn off the look-up of an outer block.
    """
    return setting(_look_up, look_up)


def settled(distance: DistanceT) -> DistanceT:
    """Return a distance as it is evaluated now: its parameters are constants in evaluation mode.

    Otherwise predictions and searches would represent the training clouds anew each time. As for
    GPyTorch's own caches, ``gpytorch.settings.detach_test_caches(False)`` tracks them.
    """
    learned = distance.training or gpytorch.settings.detach_test_caches.off()
    learned = learned or not torch.is_grad_enabled()
    if learned or not any(p.requires_grad for p in distance.parameters()):
        return distance
    return _with_fixed_parameters(distance)


def _with_fixed_parameters(module: DistanceT) -> DistanceT:
    """Return a module that shares everything with another, except that no gradient reaches parameters.

    The module itself does not change, so other threads can use it at the same time.
    """
    fixed = object.__new__(type(module))
    own = vars(module)
    parameters = {name: None if p is None else p.detach() for name, p in own["_parameters"].items()}
    modules = {name: _with_fixed_parameters(child) for name, child in own["_modules"].items()}
    vars(fixed).update(own | {"_parameters": parameters, "_modules": modules})
    return fixed


def check_rows(distance: Distance, rows: Tensor) -> None:
    """Check that a distance can read rows.

    Raises:
        TypeError: If they are not a dense tensor, or one within a transform of ``torch.func``.
        ValueError: If they have another width, or no axis that counts them.
    """
    check_content(rows)
    distance.block.split(rows)
    if rows.dim() < 2:
        raise ValueError(
            f"Expected rows as a tensor of shape (..., N, m*(d+1)), got {tuple(rows.shape)}."
        )


def adapt(distance: Distance, rows: Tensor) -> None:
    """Let a distance choose the settings that depend on the first rows it sees."""
    with torch.no_grad():
        distance.adapt(drop_copies(rows.detach()))


def representations(distance: Distance, rows: Rows) -> Tensor:
    """Adapt a distance to rows and represent them, with gradients if they need some.

    The result lacks the expanded batch axes of rows that have no gradient, but broadcasts with them.
    """
    adapt(distance, rows_of(rows))
    return _joined([_represented(distance, part) for part in _parts(distance, rows)], dim=-2)


def squared(distance: Distance, x1: Rows, x2: Rows, *, diag: bool) -> Tensor:
    """Look up or compute the squared distances between rows; see :meth:`Distance.squared`.

    The result may be held by the rows.
    """
    rows1, rows2 = rows_of(x1), rows_of(x2)
    look_up = _look_up.get()
    known = None if look_up is None else look_up(distance, rows1, rows2, diag)
    if known is not None:
        return known
    first = _parts(distance, x1)
    if x2 is x1:
        first = second = first if len(first) == 1 else [EmbeddedRows(rows1)]
    else:
        second = _parts(distance, x2)
    if diag:
        if [p.rows.shape[-2] for p in first] != [p.rows.shape[-2] for p in second]:
            first, second = [EmbeddedRows(rows1)], [EmbeddedRows(rows2)]
        pairs = zip(first, second, strict=True)
        parts = [_squared(distance, *pair, diag=True).unsqueeze(-1) for pair in pairs]
        found = _joined(parts, dim=-2).squeeze(-1)
    else:
        blocks = [
            _joined([_squared(distance, one, other, diag=False) for other in second], dim=-1)
            for one in first
        ]
        found = _joined(blocks, dim=-2)
        if isinstance(x1, Tensor) and len(first) == 1 and first[0].holds("within", by=distance):
            distance.recent.remember(x1, first[0])
    return expand_batches(found, rows1, rows2, diag=diag)


def _joined(parts: list[Tensor], *, dim: int) -> Tensor:
    """Join what is computed of several sets of rows along one of the last two axes."""
    if len(parts) == 1:
        return parts[0]
    shape = torch.broadcast_shapes(*(part.shape[:-2] for part in parts))
    return torch.cat([part.expand(*shape, *part.shape[-2:]) for part in parts], dim=dim)


def embedding(distance: Distance, rows: Tensor) -> Tensor:
    """Represent rows as a tensor with all batch axes that nothing else holds."""
    parts = _parts(distance, rows)
    found = parts[0] if len(parts) == 1 else EmbeddedRows(rows)
    held = found.holds("fixed", by=distance)
    representation = representations(distance, found)
    features = representation.expand(*rows.shape[:-1], -1)
    return features.clone() if held or features.shape != representation.shape else features


def _parts(distance: Distance, rows: Rows) -> list[EmbeddedRows]:
    """Return what holds rows, in two parts if the distance remembers the first of them."""
    if isinstance(rows, EmbeddedRows):
        return rows.parts
    check_rows(distance, rows)
    return distance.recent.find(rows)


def _squared(distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows, *, diag: bool) -> Tensor:
    """Compute squared distances, whose batch axes broadcast with those of the rows."""
    num1, num2 = x1.rows.shape[-2], x2.rows.shape[-2]
    shape = (num1,) if diag else (num1, num2)
    fixed = settled(distance)
    if 0 in (x1.rows.numel(), x2.rows.numel()):
        return _zeros(fixed, x1, x2).expand(shape).clone()
    adapt(distance, x1.rows)
    equal = x1 is x2 or same_tensor(x1.rows.detach(), x2.rows.detach())
    if equal and (diag or num1 == 1):
        check_weights(distance.block.split(drop_copies(x1.rows))[1])
        return _zeros(fixed, x1, x2).expand(shape).clone()
    if not (_tracks(fixed, x1.rows) or _tracks(fixed, x2.rows)):
        with torch.no_grad():
            return _constant(distance, x1, x2, equal=equal, diag=diag)
    return _differentiable(distance, fixed, x1, x2, diag=diag)


def represent_rows(
    distance: Distance,
    rows: Tensor,
    factors: Tensor | None = None,
    *,
    by: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Represent rows, whose atoms are multiplied by factors, in chunks that fit into the cache.

    Args:
        distance: The distance.
        rows: A ``batch_shape x N x width`` tensor.
        factors: Factors by which to multiply the columns of each atom first.
        by: Function that represents a chunk. Default: ``represent`` of the distance.
    """
    distance = settled(distance)
    by = distance.represent if by is None else by

    def represent(points: Tensor, weights: Tensor) -> Tensor:
        # Padding may have a gradient in its weights.
        if distance.trims_padding and not is_tracked(weights):
            points, weights = drop_padding(points, weights)
        return by(points if factors is None else points * factors, weights)

    points, weights = distance.block.split(rows)
    batch_shape, num_atoms = weights.shape[:-1], weights.shape[-1]
    points = points.reshape(-1, num_atoms, points.shape[-1])
    size = distance.chunk_size(num_atoms)
    tracked = _tracks(distance, rows) or (factors is not None and is_tracked(factors))
    if len(points) <= size or tracked:
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


def _represented(distance: Distance, x: EmbeddedRows) -> Tensor:
    """Represent rows, once unless only the parameters of the distance have a gradient."""
    fixed = settled(distance)
    if not _tracks(fixed, x.rows):
        return x.derived("fixed", lambda: _fixed(distance, x), by=distance)
    if not x.rows.requires_grad:
        return fixed.represent_rows(x.rows)
    return x.derived("tracked", lambda: fixed.represent_held(x), by=distance)


@torch.no_grad()
def _fixed(distance: Distance, x: EmbeddedRows) -> Tensor:
    look_up = _look_up.get()
    known = None if look_up is None else look_up(distance, x.rows, None, False)
    return distance.represent_held(x) if known is None else known


def _zeros(distance: Distance, *sets: EmbeddedRows) -> Tensor:
    """Return a zero whose gradients with respect to the rows and the parameters are zero."""
    tensors = (*(x.rows for x in sets), *distance.parameters())
    tied = sum(tensor.unsqueeze(-1)[..., :0].sum() for tensor in tensors)
    return sets[0].rows.new_zeros(1) + tied


def _differentiable(
    distance: Distance, fixed: Distance, x1: EmbeddedRows, x2: EmbeddedRows, *, diag: bool
) -> Tensor:
    """Compute squared distances with gradients; between a cloud and itself, both are zero."""
    r1 = _represented(distance, x1)
    if x1 is x2:
        return fixed.compare_all(r1, r1)
    # Where only x1 has a gradient, equal rows need no representation of their own.
    alike = not _tracks(fixed, x2.rows) and same_tensor(x1.rows.detach(), x2.rows)
    r2 = r1.detach() if alike else _represented(distance, x2)
    if diag:
        squared = fixed.compare_paired(r1, r2)
    else:
        compare = fixed.compare_all
        squared = (compare if alike else _comparison(distance, x2, r2, compare))(r1, r2)
    # Representations with and without a gradient may be rounded differently.
    return squared.masked_fill(equal_rows(x1.rows, x2.rows, diag=diag), 0)


def _constant(
    distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows, *, equal: bool, diag: bool
) -> Tensor:
    """Compute squared distances without gradients, once for the same two sets."""

    def within() -> Tensor:
        representation = _represented(distance, x1)
        return distance.compare_all(representation, representation)

    def across() -> Tensor:
        if not diag:
            return _between(distance, x1, x2)
        return distance.compare_paired(_represented(distance, x1), _represented(distance, x2))

    if equal:
        return x1.derived("within", within, by=distance)
    return x1.derived(diag, across, by=distance, beside=x2)


def _between(distance: Distance, x1: EmbeddedRows, x2: EmbeddedRows) -> Tensor:
    """Compute squared distances between two sets without gradients, in blocks to bound memory."""
    size = distance.block_rows
    r2 = _represented(distance, x2)
    compare = _comparison(distance, x2, r2, distance.compare_all)
    if distance.euclidean and x2.prepared:
        size = max(1, _BLOCK_BYTES // (r2.shape[-1] * r2.element_size()))
    known = x1.holds("fixed", by=distance) or x1.rows.shape[:-1].numel() <= size
    if known or drop_copies(x2.rows).dim() > 2:
        return compare(_represented(distance, x1), r2)
    blocks = x1.rows.flatten(0, -2).split(size)
    squared = torch.cat([compare(distance.represent_rows(block), r2) for block in blocks])
    return squared.unflatten(0, x1.rows.shape[:-1])


def _comparison(
    distance: Distance, x2: EmbeddedRows, r2: Tensor, compare: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a comparison with the representations of ``x2``, which are prepared once if they can be.

    Args:
        distance: The distance.
        x2: The second rows.
        r2: Their representations.
        compare: The comparison otherwise, ``compare_all`` of the distance.
    """
    if r2.requires_grad or not distance.euclidean:
        return compare
    if not x2.prepared and r2.nbytes > _PREPARED_BYTES:
        return compare
    prepared = x2.derived("prepared", lambda: squared_euclidean_to(r2), by=distance)
    return lambda r1, r2: prepared(r1) if r1.shape[-1] == r2.shape[-1] else compare(r1, r2)


def _tracks(distance: Distance, rows: Tensor) -> bool:
    """Return whether the representations of rows by a settled distance need a gradient."""
    return is_tracked(rows, *distance.parameters())


def _empty(rows: int, like: Tensor) -> Tensor:
    """Allocate an uninitialised tensor of ``rows`` rows with the width, dtype and device of ``like``."""
    shape = (rows, like.shape[-1])
    if like.device.type != "cpu":
        return like.new_empty(shape)
    # NumPy requests huge pages; without them, the first access to the memory takes as long as a sort.
    return torch.from_numpy(np.empty(shape, dtype=like.numpy().dtype))
