"""Optimisation of acquisition functions over a fixed set of clouds."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from gp_distributions.bayesopt.proposing import one_by_one
from gp_distributions.distances.base import Distance
from gp_distributions.distances.evaluation import looking_up, representations
from gp_distributions.distances.principal import PrincipalDistance
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.kinds import Distributions, as_rows, kind_of
from gp_distributions.rows.clouds import drop_copies, pad_rows
from gp_distributions.rows.columns import Columns
from gp_distributions.rows.fingerprint import fingerprint
from gp_distributions.rows.layout import Block

# Number of candidates that are embedded at a time, and per matrix product, so that features of the
# latter fit into the cache.
_BLOCK, _STRIP = 1024, 32
# Number of bytes for features of candidates.
_MEMORY = 2.0**31


class Pool:
    """A fixed set of candidate clouds that remembers their distances.

    Between calls of :func:`optimize_over_pool`, a pool keeps the squared distances between all
    candidates and the training clouds of the model: ``N`` numbers for each training cloud. It also
    keeps the features of the candidates if there is enough memory, so that every candidate is embedded
    only once. Otherwise, candidates are embedded again, in blocks, whenever there are new training
    clouds. A later model may have a new kernel; the stored distances are used as long as the distance
    of that kernel has the same settings and parameters.

    Args:
        candidates: The ``N`` clouds, as :class:`PointClouds`, :class:`Gaussians`,
            :class:`GaussianMixtures` or an ``N x m*(d+1)`` tensor of rows.
        memory: Number of bytes for the features of the candidates, for each distance. Default: 2 GiB.

    Attributes:
        rows: The candidates, ``N x width``.
        clouds: The candidates as distributions; ``None`` for a tensor of rows.
        dim: Dimension of the atoms of :class:`PointClouds`, else ``None``.
        block: Kind and dimension of the candidates; ``None`` for a tensor of rows.
        labels: Labels of the candidates, or ``None``.

    Raises:
        TypeError: If ``candidates`` has another type, such as a list.
        ValueError: If there are no candidates, or rows have batch axes.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.bayesopt import Pool
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(10, 5, 2)))
        >>> pool = Pool(clouds)  # for optimize_over_pool
        >>> len(pool), pool.rows.shape
        (10, torch.Size([10, 15]))
    """

    def __init__(self, candidates: Distributions | Tensor, *, memory: float = _MEMORY) -> None:
        rows = as_rows(candidates)
        if rows.dim() != 2 or not len(rows):
            raise ValueError(
                f"Expected N >= 1 clouds or an N x width tensor of rows, got shape {tuple(rows.shape)}."
            )
        self.rows = rows.detach()
        self.clouds = None if isinstance(candidates, Tensor) else candidates
        self.dim = candidates.dim if isinstance(candidates, PointClouds) else None
        kind = kind_of(candidates)
        self.block = None if isinstance(candidates, Tensor) else Block(str(kind), candidates.dim)
        self.labels = getattr(candidates, "labels", None)
        self.memory = memory
        self._tables: dict[Hashable, Table] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        """Forget all distances and features of the candidates."""
        self._tables.clear()

    def look_up(self, module: torch.nn.Module, columns: Columns = None) -> PoolLookUp:
        """Return a look-up of distances for the kernels of a module, for use with ``looking_up``.

        Args:
            module: An acquisition function or a model.
            columns: Columns of the inputs of the kernels that hold the candidates; ``None`` if the
                candidates are whole inputs.
        """
        tables: dict[Hashable, Table] = {}
        found: list[Table] = []
        for kernel, block in distribution_kernels(module):
            inside = block if columns is None else Block(block.kind, block.dim)
            key = fingerprint(kernel.distance), inside
            if key in self._tables:
                tables[key] = self._tables[key]
            if columns is None or block.columns == columns:
                if key not in tables:
                    distance, rows = kernel.distance, inside.select(self.rows)
                    principal = isinstance(distance, PrincipalDistance)
                    base = (
                        tables.get((fingerprint(distance.distance), inside)) if principal else None
                    )
                    tables[key] = Table(distance, rows, self.memory, base)
                found.append(tables[key])
        # The tables of other columns stay, because several parts of a candidate may be in the same
        # pool. Those that the module does not use belong to the distances of earlier models.
        self._tables = tables
        return PoolLookUp(found)


class Table:
    """Squared distances between the candidates of a pool and all other clouds seen so far.

    Each of these clouds has a place; that of the candidates themselves is 0.

    Args:
        distance: The distance, which is copied.
        rows: The ``N`` candidates, with only the columns that the distance reads.
        memory: Number of bytes available for the features of the candidates.
        base: The table of the distance whose principal components are compared, if there is one.
    """

    def __init__(
        self, distance: Distance, rows: Tensor, memory: float, base: Table | None = None
    ) -> None:
        # Later changes of the parameters do not affect a copy.
        self.distance = copy.deepcopy(distance).requires_grad_(False)
        self.fingerprint = fingerprint(distance)
        self.rows = rows
        self.squared = rows.new_zeros(len(rows), 1)
        self._memory = memory
        self._base = base
        self._centre = rows.new_zeros(())
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._places: dict[bytes, int] = {}
        self._known = rows[:0]
        self._points: list[Tensor] = []
        self._between = rows.new_zeros(1, 1)

    @torch.no_grad()
    def places(self, rows: Tensor) -> Tensor:
        """Return the places of ``M`` clouds in the table, after adding those that it lacks."""
        keys = [row.tobytes().rstrip(b"\0") for row in rows.cpu().numpy()]  # without padding
        new = {key: i for i, key in enumerate(keys) if key not in self._places}
        if new:
            added = rows[list(new.values())]
            with looking_up(None):
                # One cloud at a time: matrix products with several columns are rounded differently. A
                # search sees clouds one by one, but all of them at once when it is resumed, and it must
                # then choose the same candidates.
                points = [representations(self.distance, row) for row in added.split(1)]
                columns = torch.cat([self._compared(*block, points) for block in self._blocks()])
            width = max(rows.shape[-1], self._known.shape[-1])
            self._known = torch.cat([pad_rows(self._known, width), pad_rows(added, width)])
            self.squared = torch.cat([self.squared, columns], dim=-1)
            if self.distance.ard_num_dims:
                self._points += points
            self._places |= {key: len(self._places) + i for i, key in enumerate(new, start=1)}
        return torch.tensor([self._places[key] for key in keys], device=rows.device).long()

    @property
    def between(self) -> Tensor:
        """Squared distances between the clouds of two places, zero for candidates."""
        if len(self._between) <= len(self._known):
            with looking_up(None), torch.no_grad():
                found = self.distance.squared(self._known)
            self._between = torch.nn.functional.pad(found, (1, 0, 1, 0))
        return self._between

    @cached_property
    def features(self) -> Tensor:
        """Features of the candidates, ``N x D``."""
        return torch.cat([found + self._centre for found, _ in self._blocks()])

    def features_at(self, places: Tensor) -> Tensor:
        """Return the features of the clouds of ``M`` places, ``M x D``, zero for candidates."""
        zero = torch.zeros_like(self.features[:1])
        return torch.cat([zero, *self._points])[places]

    def _compared(self, found: Tensor, norms: Tensor, points: Sequence[Tensor]) -> Tensor:
        if not self.distance.euclidean:
            return torch.cat([self.distance.compare_all(found, point) for point in points], dim=-1)
        centred = [point.squeeze(0) - self._centre for point in points]
        strips = found.split(_STRIP)
        inner = torch.cat([torch.stack([strip @ p for p in centred], dim=-1) for strip in strips])
        squares = torch.stack([point.square().sum() for point in centred])
        return inner.mul_(-2).add_(squares).add_(norms.unsqueeze(-1)).clamp_min_(0)

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features of the candidates and their squared norms, and keep them if there is memory."""
        if self._kept:
            yield from self._kept
            return
        kept: list[tuple[Tensor, Tensor]] = []
        for number, found in enumerate(self._represented()):
            if self.distance.euclidean:
                if not number:
                    self._centre = found.mean(0)  # close to all features, which preserves digits
                found = found - self._centre
            block = found, torch.einsum("nd,nd->n", found, found)
            if len(self.rows) * found[0].nbytes <= self._memory:
                kept.append(block)
            yield block
        self._kept = kept

    def _represented(self) -> Iterator[Tensor]:
        if self._base is not None and isinstance(self.distance, PrincipalDistance):
            for found, _ in self._base._blocks():
                # Components are linear in features, of which a sum would be another copy.
                yield self.distance.project(found) + self.distance.project(self._base._centre)
        else:
            for part in self.rows.split(_BLOCK):
                yield representations(self.distance, part)


class PoolLookUp:
    """Looks up the squared distances of the candidates that are being evaluated, or their features.

    BoTorch joins every candidate of a batch with the same pending points, baseline points and training
    rows. Each position along the second to last axis therefore holds either the candidates, one for each
    batch element, or the same cloud in all batch elements. For any other rows, the look-up returns
    ``None`` and the distance is computed.

    Args:
        tables: Tables of the distances of a model's kernels.

    Attributes:
        batch: Indices of the candidates that are being evaluated.
        asked: Rows of these candidates, which are not compared if a kernel sees this tensor itself.
        constant: Whether candidates do not move, although the inputs that hold them require a gradient.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self.batch = torch.tensor([])
        self.constant = False
        self.asked = torch.tensor([])

    def __call__(self, distance: Any, x1: Tensor, x2: Tensor | None, diag: bool) -> Tensor | None:
        """Return squared distances, or ``None`` if they have to be computed."""
        known = [] if diag else [t for t in self._tables if t.fingerprint == fingerprint(distance)]
        if x2 is None:
            return self._features(known, x1) if distance.ard_num_dims else None
        for table in known:
            first = self._places(table, x1)
            second = first if x2 is x1 or first is None else self._places(table, x2)
            if first is None or second is None or (first.all() and second.all()):
                continue
            squared = table.squared[self.batch]
            found = squared[:, None, second]
            if first.any():
                fixed = table.between[first][:, second] if second.any() else 0
                found = found * (first == 0)[:, None] + squared[:, first, None] * (second == 0)
                found = found + fixed
            batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
            found = found.reshape(len(found), *[1] * (len(batch_shape) - 1), *found.shape[1:])
            return found.expand(*batch_shape, -1, -1)
        return None

    def _features(self, tables: Sequence[Table], rows: Tensor) -> Tensor | None:
        """Return the features of rows that hold candidates."""
        for table in tables:
            places = self._places(table, rows)
            if places is None or places.all():
                continue
            found = table.features[self.batch].reshape(len(rows), *[1] * (rows.dim() - 2), -1)
            return torch.where((places == 0).unsqueeze(-1), found, table.features_at(places))
        return None

    def _places(self, table: Table, rows: Tensor) -> Tensor | None:
        """Return the place in the table of each position of ``rows``, if each has one."""
        width, axes = rows.shape[-1], rows.dim() - 2
        if (rows.requires_grad and not self.constant) or width < table.rows.shape[-1]:
            return None
        rows = rows.detach()
        if rows.numel() == self.asked.numel() and rows.data_ptr() == self.asked.data_ptr():
            return torch.zeros(1, dtype=torch.long, device=rows.device)
        if (once := drop_copies(rows)).dim() == 2 and (len(self.batch) > 1 or not axes):
            return table.places(once)
        if len(rows) != len(self.batch):
            return None
        candidates = pad_rows(table.rows[self.batch], width)
        candidates = candidates.reshape(len(rows), *[1] * (axes - 1), width)
        first = rows[(0,) * axes]
        moving = torch.stack([(row == candidates).all() for row in rows.unbind(-2)])
        for place in (~moving).nonzero().flatten().tolist():
            if not (rows[..., place, :] == first[place]).all():
                return None
        places = torch.zeros_like(moving, dtype=torch.long)
        if not moving.all():
            places[~moving] = table.places(first[~moving])
        return places


def optimize_over_pool(
    acquisition: AcquisitionFunction,
    pool: Pool | Distributions | Tensor,
    q: int = 1,
    *,
    exclude: Iterable[int] | Tensor = (),
    batch_size: int = 2048,
) -> tuple[Tensor, Tensor]:
    """Find the candidates of a pool with the largest values of an acquisition function.

    Candidates are selected one by one, each with the previous ones as pending points. The acquisition
    function is evaluated on the rows of the candidates as usual; only the distances in its kernels are
    looked up.

    Args:
        acquisition: BoTorch acquisition function of a model on rows. For ``q > 1`` it must support
            pending points, as Monte Carlo acquisition functions do.
        pool: The candidates. For several calls, use a :class:`Pool`, which remembers distances.
        q: Number of candidates to select.
        exclude: Indices of candidates that must not be selected, such as those already evaluated.
        batch_size: Number of candidates to evaluate at a time, which bounds memory.

    Returns:
        The indices of the selected candidates, a tensor of ``q`` distinct integers, and the value of the
        acquisition function at each candidate when it was selected.

    Raises:
        IndexError: If an excluded index is not in the pool.
        ValueError: If fewer than ``q`` candidates are left, ``q`` or ``batch_size`` is less than one, or
            a value of the acquisition function is NaN.
        UnsupportedError: If the acquisition function is one-shot, or ``q > 1`` and it does not support
            pending points.

    Example:
        >>> import numpy as np
        >>> from botorch.acquisition import LogExpectedImprovement
        >>> from gp_distributions import DistributionGP, PointClouds
        >>> from gp_distributions.bayesopt import optimize_over_pool
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(30, 5, 2)))
        >>> y = clouds.points.mean((1, 2))
        >>> model = DistributionGP(clouds[:10], y[:10])
        >>> acquisition = LogExpectedImprovement(model, best_f=y[:10].max())
        >>> indices, values = optimize_over_pool(acquisition, clouds, exclude=range(10))
        >>> len(indices), bool(indices >= 10)
        (1, True)
    """
    integer(batch_size, "batch_size")
    pool = pool if isinstance(pool, Pool) else Pool(pool)
    taken = torch.as_tensor(
        exclude if isinstance(exclude, Tensor) else list(exclude), device=pool.rows.device
    )
    if taken.dtype == torch.bool:
        raise ValueError("Expected indices in exclude, got truth values. Pass mask.nonzero().")
    kept = torch.ones(len(pool), dtype=torch.bool, device=pool.rows.device)
    kept[taken.long()] = False
    left = kept.nonzero().squeeze(-1)
    if not 1 <= q <= len(left):
        raise ValueError(
            f"Expected q from 1 to the number of candidates that are left, {len(left)} of {len(pool)}, "
            f"got {q}."
        )
    look_up = pool.look_up(acquisition)
    values: list[Tensor] = []

    def find(found: list[Tensor]) -> Tensor:
        choices = left[~torch.isin(left, torch.stack(found))] if found else left
        parts = []
        for look_up.batch in choices.split(batch_size):
            look_up.asked = pool.rows[look_up.batch].unsqueeze(-2)
            parts.append(acquisition(look_up.asked))
        best, place = torch.cat(parts).max(0)  # NaN if any value is
        values.append(best)
        return choices[place]

    with torch.no_grad(), looking_up(look_up):
        found = one_by_one(acquisition, q, find, lambda found: pool.rows[torch.stack(found)])
    if torch.stack(values).isnan().any():
        raise ValueError(f"Expected values of {acquisition} that are not NaN, got {values}.")
    return torch.stack(found), torch.stack(values)
