"""Distances of a pool's candidates to other clouds, computed once and looked up."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.rows.clouds import drop_copies, pad_rows
from gp_distributions.rows.memory import same_tensor

# Candidates that are embedded or compared at a time.
_BLOCK = 1024
# Candidates whose features stay in the processor's cache while they meet all new clouds.
_STRIP = 32
# Attributes of a distance that are no settings.
_MODULE = set(vars(torch.nn.Module())) | {"_cache", "_shared"}


class Table:
    """Squared distances of ``N`` candidates to the clouds met so far.

    Args:
        distance: Whose distances they are; its settings are copied.
        rows: The ``N`` candidates as the distance sees them.
        columns: The columns of the pool's rows that these are; ``None``: all.
        memory: Bytes that features may take.
    """

    def __init__(
        self, distance: Distance, rows: Tensor, *, columns: Tensor | None, memory: float
    ) -> None:
        self.distance = snapshot(distance)
        self.rows = rows
        self.columns = columns
        self._memory = memory
        self._centre: Tensor | None = None
        self._features: tuple[Tensor, ...] = ()
        self._places: dict[bytes, int] = {}
        self._known = rows[:0]
        self._between = rows.new_empty(0, 0)
        self._squared = rows.new_empty(len(rows), 0)

    def places(self, rows: Tensor) -> Tensor:
        """The places of other clouds, ``M`` rows, in the table; new ones are added.

        Clouds are told apart by their bytes, at the width that they come in.
        """
        width = max(rows.shape[-1], self._known.shape[-1])
        keys = [row.tobytes() for row in pad_rows(rows, width).cpu().numpy()]
        if width > self._known.shape[-1]:
            self._known = pad_rows(self._known, width)
            stored = enumerate(self._known.cpu().numpy())
            self._places = {row.tobytes(): place for place, row in stored}
        new = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self._places}
        if new:
            first = sorted(new.values())
            self._add(pad_rows(rows, width)[first])
        found = [self._places[key] for key in keys]
        return torch.tensor(found, dtype=torch.long, device=rows.device)

    def to_known(self, candidates: Tensor, places: Tensor) -> Tensor:
        """Squared distances of candidates, by their indices, to known clouds: ``b x M``."""
        return self._squared[candidates][:, places]

    def between_known(self, places1: Tensor, places2: Tensor) -> Tensor:
        """Squared distances of known clouds to each other, ``M x M'``."""
        if len(self._between) < len(self._known):
            self._between = self.distance.squared(self._known)
        return self._between[places1][:, places2]

    @torch.no_grad()
    def _add(self, rows: Tensor) -> None:
        new = self._to_candidates(rows)
        for row in rows.cpu().numpy():
            self._places[row.tobytes()] = len(self._places)
        self._known = torch.cat([self._known, rows])
        self._squared = torch.cat([self._squared, new], dim=-1)

    def _to_candidates(self, rows: Tensor) -> Tensor:
        """Squared distances of all candidates to clouds, to each as if it were the only one.

        Products with several columns round otherwise than those with one, and rounding is all that
        tells identical candidates apart: a search that is made anew meets at once what it met one
        by one.
        """
        apart = rows.split(1)
        if not self.distance.euclidean:
            return torch.cat([self._compare(part, apart) for part in self.rows.split(_BLOCK)])
        if self._centre is None:
            self._centre = self._keep_features()
        points = [self.distance.embed(row).squeeze(0) - self._centre for row in apart]
        blocks = self._blocks(self._centre)
        return torch.cat([_squared(features, norms, points) for features, norms in blocks])

    def _compare(self, candidates: Tensor, apart: Sequence[Tensor]) -> Tensor:
        with self.distance.sharing():
            return torch.cat([self.distance.squared(candidates, row) for row in apart], dim=-1)

    def _keep_features(self) -> Tensor:
        """Embed the candidates if there is room for their features, and give their centre."""
        first = self.distance.embed(self.rows[:_BLOCK])
        # Near to all of them: what features share costs no digits once it is taken off.
        centre = first.mean(0)
        size = len(self.rows)
        if size * first[0].nbytes > self._memory:
            return centre
        features, norms = first.new_empty(size, first.shape[-1]), first.new_empty(size)
        for start in range(0, size, _BLOCK):
            part = slice(start, start + _BLOCK)
            features[part] = (self.distance.embed(self.rows[part]) if start else first) - centre
            norms[part] = _squared_norms(features[part])
        self._features = (features, norms)
        return centre

    def _blocks(self, centre: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Centred features of the candidates and their squared norms, as kept or embedded anew."""
        if self._features:
            yield from zip(*(kept.split(_BLOCK) for kept in self._features), strict=True)
            return
        for part in self.rows.split(_BLOCK):
            features = self.distance.embed(part) - centre
            yield features, _squared_norms(features)


class PoolDistance(Distance):
    """A distance that looks up those of the candidates at hand, and computes all others.

    What it is asked for are rows, in which BoTorch has joined every candidate of a batch with the same
    pending points and baseline, and training rows. Each place along the second to last axis therefore
    holds either the candidates, one in each batch, or one cloud throughout; anything else is computed.

    Args:
        distance: The distance.
        table: What is known of it.
    """

    def __init__(self, distance: Distance, table: Table) -> None:
        torch.nn.Module.__init__(self)
        self.dim, self.inputs = distance.dim, distance.inputs
        self.distance = distance
        self.table = table
        self.batch: Tensor | None = None
        """The indices of the candidates that are being evaluated."""
        self._shared = None

    @property
    def atom_columns(self) -> int | None:
        """As that of the distance."""
        return self.distance.atom_columns

    @property
    def euclidean(self) -> bool:
        """As that of the distance."""
        return self.distance.euclidean

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """As the distance does."""
        return self.distance.represent(points, weights)

    def adapt(self, rows: Tensor) -> None:
        """As the distance does."""
        self.distance.adapt(rows)

    def squared_norms(self, rows: Tensor) -> Tensor:
        """As the distance does."""
        return self.distance.squared_norms(rows)

    def squared(self, x1: Tensor, x2: Tensor | None = None, *, diag: bool = False) -> Tensor:
        """Squared distances, looked up where the candidates are among the rows."""
        left = self._resolve(x1)
        right = left if x2 is None or x2 is x1 else self._resolve(x2)
        if diag or left is None or right is None or not (left[0].any() or right[0].any()):
            return self.distance.squared(x1, x2, diag=diag)
        assert self.batch is not None
        (moving1, places1), (moving2, places2) = left, right
        fixed1, fixed2 = ~moving1, ~moving2
        squared = x1.new_zeros(len(self.batch), len(moving1), len(moving2))
        table, candidates = self.table, self.batch
        # A candidate meets itself at a distance of zero.
        between = table.between_known(places1, places2)
        squared[:, fixed1.nonzero(), fixed2.nonzero().T] = between.expand(len(candidates), -1, -1)
        if bool(moving1.any()):
            squared[:, moving1.nonzero(), fixed2.nonzero().T] = table.to_known(
                candidates, places2
            ).unsqueeze(1)
        if bool(moving2.any()):
            squared[:, fixed1.nonzero(), moving2.nonzero().T] = table.to_known(
                candidates, places1
            ).unsqueeze(-1)
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], () if x2 is None else x2.shape[:-2])
        ones = [1] * (len(batch_shape) - 1)
        return squared.reshape(len(candidates), *ones, *squared.shape[-2:]).expand(
            *batch_shape, -1, -1
        )

    def _resolve(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """Which places of rows hold the candidates, and where in the table the others are."""
        if self.batch is None or rows.requires_grad or rows.shape[-1] < self.table.rows.shape[-1]:
            return None
        count, places = len(self.batch), rows.shape[-2]
        moving = torch.zeros(places, dtype=torch.bool, device=rows.device)
        fixed = drop_copies(rows)
        if fixed.dim() > 2 or (count == 1 and rows.dim() > 2):
            if rows.shape[0] != count:
                return None
            ones = [1] * (rows.dim() - 3)
            candidates = pad_rows(self.table.rows[self.batch], rows.shape[-1])
            candidates = candidates.reshape(count, *ones, -1)
            for place in range(places):
                column = rows[..., place, :]
                if bool((column == candidates).all()):
                    moving[place] = True
                elif not bool((column == column[(0,) * (column.dim() - 1)]).all()):
                    return None
            fixed = rows[(0,) * (rows.dim() - 2)]
        return moving, self.table.places(fixed[~moving])


def _squared(features: Tensor, norms: Tensor, points: Sequence[Tensor]) -> Tensor:
    """Squared distances of features to points, one column for each."""
    inner = torch.cat(
        [
            torch.stack([strip @ point for point in points], dim=-1)
            for strip in features.split(_STRIP)
        ]
    )
    squares = torch.stack([point.square().sum() for point in points])
    return inner.mul_(-2).add_(squares).add_(norms.unsqueeze(-1)).clamp_min_(0)


def _squared_norms(features: Tensor) -> Tensor:
    return torch.einsum("nd,nd->n", features, features)


def snapshot(distance: Distance) -> Distance:
    """A copy that later changes of the parameters do not reach."""
    copied = copy.deepcopy(distance)
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    return copied


def same_distance(a: Distance, b: Distance) -> bool:
    """Whether two distances have the same class, settings, parameters and buffers."""
    modules_a, modules_b = dict(a.named_modules()), dict(b.named_modules())
    return modules_a.keys() == modules_b.keys() and all(
        _same_module(module, modules_b[name]) for name, module in modules_a.items()
    )


def _same_module(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    if type(a) is not type(b):
        return False
    settings_a, settings_b = (
        {name: value for name, value in vars(module).items() if name not in _MODULE}
        for module in (a, b)
    )
    tensors_a, tensors_b = ({**module._parameters, **module._buffers} for module in (a, b))
    return (
        settings_a.keys() == settings_b.keys()
        and all(_same_setting(value, settings_b[name]) for name, value in settings_a.items())
        and tensors_a.keys() == tensors_b.keys()
        and all(_same_tensor(value, tensors_b[name]) for name, value in tensors_a.items())
    )


def _same_setting(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and same_tensor(a, b)
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same_setting, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same_setting(a[key], b[key]) for key in a)
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):  # what cannot be compared may differ
        return False


def _same_tensor(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return same_tensor(a, b)
