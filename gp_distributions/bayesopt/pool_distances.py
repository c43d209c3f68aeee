"""Distances between the candidates of a pool and other clouds, computed once and then looked up."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.evaluation import looking_up, representations
from gp_distributions.rows.clouds import drop_copies, pad_rows
from gp_distributions.rows.fingerprint import fingerprint

# Number of candidates that are embedded or compared at a time.
_BLOCK = 1024
# Number of candidates per matrix product, small enough that their features fit into the cache.
_STRIP = 32


class Table:
    """Stores the squared distances between ``N`` candidates and all other clouds seen so far.

    Args:
        distance: The distance, which is copied.
        rows: The ``N`` candidates, with only the columns that the distance reads.
        memory: Number of bytes available for the features of the candidates. Default: half of the
            memory that is free when they are stored.
    """

    def __init__(self, distance: Distance, rows: Tensor, *, memory: float | None = None) -> None:
        self.fingerprint = fingerprint(distance)
        # Later changes of the parameters do not affect a copy.
        self.distance = copy.deepcopy(distance).requires_grad_(False)
        self.rows = rows
        self._memory = memory
        self._centre: Tensor | None = None
        self._kept: list[tuple[Tensor, ...]] = []
        self._places: dict[bytes, int] = {}
        self._known = rows[:0]
        self._between = rows.new_empty(0, 0)
        self._squared = rows.new_empty(len(rows), 0)

    def places(self, rows: Tensor) -> Tensor:
        """Return the positions of ``M`` clouds in the table, after adding those that it lacks.

        Two clouds are the same if their rows have the same bytes after padding to the same width.
        """
        width = max(rows.shape[-1], self._known.shape[-1])
        keys = [row.tobytes() for row in pad_rows(rows, width).cpu().numpy()]
        if width > self._known.shape[-1]:
            self._known = pad_rows(self._known, width)
            stored = enumerate(self._known.cpu().numpy())
            self._places = {row.tobytes(): place for place, row in stored}
        new = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self._places}
        if new:
            self._add(pad_rows(rows, width)[sorted(new.values())])
        found = [self._places[key] for key in keys]
        return torch.tensor(found, dtype=torch.long, device=rows.device)

    def to_known(self, candidates: Tensor, places: Tensor) -> Tensor:
        """Return the ``b x M`` squared distances from candidates, given by index, to stored clouds."""
        return self._squared[candidates][:, places]

    def between_known(self, places1: Tensor, places2: Tensor) -> Tensor:
        """Return the ``M x M'`` squared distances between stored clouds."""
        if len(self._between) < len(self._known):
            with looking_up(None):
                self._between = self.distance.squared(self._known)
        return self._between[places1][:, places2]

    @torch.no_grad()
    def _add(self, rows: Tensor) -> None:
        with looking_up(None):
            new = self._to_candidates(rows)
        for row in rows.cpu().numpy():
            self._places[row.tobytes()] = len(self._places)
        self._known = torch.cat([self._known, rows])
        self._squared = torch.cat([self._squared, new], dim=-1)

    def _to_candidates(self, rows: Tensor) -> Tensor:
        """Compute squared distances from all candidates to the given clouds, one cloud at a time.

        Matrix products with several columns are rounded differently from products with one column. A
        search sees clouds one by one, but sees all of them at once when it is resumed, and it must then
        choose the same candidates.
        """
        points = [representations(self.distance, row) for row in rows.split(1)]
        return torch.cat([self._compare(block, points) for block in self._blocks()])

    def _compare(self, block: tuple[Tensor, ...], points: Sequence[Tensor]) -> Tensor:
        if self._centre is None:
            (found,) = block
            return torch.cat([self.distance.compare_all(found, point) for point in points], dim=-1)
        features, norms = block
        return _squared(features, norms, [point.squeeze(0) - self._centre for point in points])

    def _blocks(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield what represents the candidates in blocks, and keep it if there is memory."""
        if self._kept:
            yield from self._kept
            return
        kept: list[tuple[Tensor, ...]] = []
        memory = _half_of_free_memory(self.rows.device) if self._memory is None else self._memory
        for part in self.rows.split(_BLOCK):
            block = self._block(part)
            if len(self.rows) * block[0][0].nbytes <= memory:
                kept.append(block)
            yield block
        self._kept = kept

    def _block(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Represent candidates, as centred features and their squared norms if there are features."""
        found = representations(self.distance, rows)
        if not self.distance.euclidean:
            return (found,)
        if self._centre is None:
            # Subtracting a point close to all features preserves digits.
            self._centre = found.mean(0)
        features = found - self._centre
        return features, torch.einsum("nd,nd->n", features, features)


class PoolLookUp:
    """Looks up the squared distances of the candidates that are being evaluated.

    BoTorch joins every candidate of a batch with the same pending points, baseline points and training
    rows. Each position along the second to last axis therefore holds either the candidates, one for each
    batch element, or the same cloud in all batch elements. For any other rows, the look-up returns
    ``None`` and the distance is computed.

    Args:
        tables: Tables of the distances of a model's kernels.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._known: dict[int, tuple[object, list[Table]]] = {}
        self.batch: Tensor | None = None
        """Indices of the candidates that are being evaluated."""
        self.constant = False
        """Whether candidates do not move, although the inputs that hold them require a gradient."""

    def __call__(self, distance: Any, x1: Tensor, x2: Tensor, diag: bool) -> Tensor | None:
        """Return squared distances, or ``None`` if they have to be computed."""
        if diag or self.batch is None:
            return None
        for table in self._tables_of(distance):
            left = self._resolve(table, x1)
            right = left if x2 is x1 else self._resolve(table, x2)
            if left is not None and right is not None and bool(left[0].any() or right[0].any()):
                batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
                return self._assemble(table, left, right, batch_shape)
        return None

    def _tables_of(self, distance: Any) -> list[Table]:
        # A reference to each distance is kept, so that its id is not reused. The distances of a copied
        # model are other objects with the same fingerprint.
        if id(distance) not in self._known:
            found = fingerprint(distance)
            tables = [table for table in self._tables if table.fingerprint == found]
            self._known[id(distance)] = distance, tables
        return self._known[id(distance)][1]

    def _assemble(
        self,
        table: Table,
        left: tuple[Tensor, Tensor],
        right: tuple[Tensor, Tensor],
        batch_shape: torch.Size,
    ) -> Tensor:
        assert self.batch is not None
        candidates = self.batch
        (moving1, places1), (moving2, places2) = left, right
        fixed1, fixed2 = ~moving1, ~moving2
        squared = table.rows.new_zeros(len(candidates), len(moving1), len(moving2))
        # The distance of a candidate to itself stays zero.
        between = table.between_known(places1, places2)
        squared[:, fixed1.nonzero(), fixed2.nonzero().T] = between.expand(len(candidates), -1, -1)
        if bool(moving1.any()):
            to_known = table.to_known(candidates, places2).unsqueeze(1)
            squared[:, moving1.nonzero(), fixed2.nonzero().T] = to_known
        if bool(moving2.any()):
            to_known = table.to_known(candidates, places1).unsqueeze(-1)
            squared[:, fixed1.nonzero(), moving2.nonzero().T] = to_known
        ones = [1] * (len(batch_shape) - 1)
        squared = squared.reshape(len(candidates), *ones, *squared.shape[-2:])
        return squared.expand(*batch_shape, -1, -1)

    def _resolve(self, table: Table, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """Find the positions of ``rows`` that hold the candidates, and the table places of the others.

        Returns ``None`` if the distances of these rows cannot be looked up.
        """
        assert self.batch is not None
        if (rows.requires_grad and not self.constant) or rows.shape[-1] < table.rows.shape[-1]:
            return None
        rows = rows.detach()
        count, places = len(self.batch), rows.shape[-2]
        moving = torch.zeros(places, dtype=torch.bool, device=rows.device)
        fixed = drop_copies(rows)
        if fixed.dim() > 2 or (count == 1 and rows.dim() > 2):
            if rows.shape[0] != count:
                return None
            ones = [1] * (rows.dim() - 3)
            candidates = pad_rows(table.rows[self.batch], rows.shape[-1])
            candidates = candidates.reshape(count, *ones, -1)
            for place in range(places):
                column = rows[..., place, :]
                if bool((column == candidates).all()):
                    moving[place] = True
                elif not bool((column == column[(0,) * (column.dim() - 1)]).all()):
                    return None
            fixed = rows[(0,) * (rows.dim() - 2)]
        return moving, table.places(fixed[~moving])


def _squared(features: Tensor, norms: Tensor, points: Sequence[Tensor]) -> Tensor:
    """Compute squared Euclidean distances from features to points, one column for each point."""
    strips = features.split(_STRIP)
    inner = torch.cat([torch.stack([strip @ p for p in points], dim=-1) for strip in strips])
    squares = torch.stack([point.square().sum() for point in points])
    return inner.mul_(-2).add_(squares).add_(norms.unsqueeze(-1)).clamp_min_(0)


def _half_of_free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    except (AttributeError, OSError, ValueError):
        return 2.0**31
