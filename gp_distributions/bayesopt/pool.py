"""Optimisation of acquisition functions over a fixed set of clouds."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from gp_distributions.bayesopt.acquisitions import ThompsonSampling
from gp_distributions.bayesopt.proposing import one_by_one
from gp_distributions.distances.base import Distance, DistanceWrapper
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, rows_of, state_of
from gp_distributions.distances.principal import PrincipalDistance
from gp_distributions.kernels.reading import distribution_kernels
from gp_distributions.measures import MixedEncoding, MixedInputs, PointClouds
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.gaussians import Distributions
from gp_distributions.measures.inputs import Inputs, input_rows, kind_of
from gp_distributions.rows.clouds import drop_copies, pad_rows
from gp_distributions.rows.layout import Block, Columns

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)

# Number of candidates that are embedded at a time, and per matrix product, so that features of the
# latter fit into the cache.
_BLOCK, _STRIP = 1024, 32
# Number of bytes for features of candidates.
_MEMORY = 2.0**31


class Pool:
    """A fixed set of candidates, clouds alone or beside other inputs, that remembers their distances.

    Between calls of :func:`optimize_over_pool`, a pool keeps the squared distances between all
    candidates and the training clouds of the model: ``N`` numbers for each training cloud. It also
    keeps the features of the candidates if there is enough memory, so that every candidate is embedded
    only once. Otherwise, candidates are embedded again, in blocks, whenever there are new training
    clouds. A later model may have a new kernel; the stored distances are used as long as the distance
    of that kernel has the same settings and parameters.

    Args:
        candidates: The ``N`` clouds, as :class:`PointClouds`, :class:`Gaussians`,
            :class:`GaussianMixtures`, :class:`MixedInputs` or an ``N x m*(d+1)`` tensor of rows.
        encoding: The encoding of the model, of mixed inputs. Default: the one that these define.
        memory: Number of bytes for the features of the candidates, for each distance. Default: 2 GiB.

    Attributes:
        rows: The candidates, ``N x width``.
        clouds: The candidates as distributions; ``None`` for a tensor of rows or mixed inputs.
        inputs: The candidates as they were given.
        encoding: The encoding of mixed inputs, else ``None``.
        dim: Dimension of the atoms of :class:`PointClouds`, else ``None``.
        block: Kind and dimension of the candidates; ``None`` for a tensor of rows or mixed inputs.
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

    def __init__(
        self,
        candidates: Inputs | Tensor,
        *,
        encoding: MixedEncoding | None = None,
        memory: float = _MEMORY,
    ) -> None:
        self.encoding: MixedEncoding | None = None
        if isinstance(candidates, MixedInputs):
            self.encoding = encoding or candidates.encoding
        rows = input_rows(candidates, self.encoding)
        if rows.dim() != 2 or not len(rows):
            raise ValueError(
                f"Expected N >= 1 clouds or an N x width tensor of rows, got shape {tuple(rows.shape)}."
            )
        self.rows = rows.detach()
        self.inputs = candidates
        self.clouds = candidates if isinstance(candidates, Distributions) else None
        self.dim = candidates.dim if isinstance(candidates, PointClouds) else None
        self.block = None
        if self.clouds is not None:
            self.block = Block(str(kind_of(self.clouds)), self.clouds.dim)
        self.labels = getattr(candidates, "labels", None)
        self.memory = memory
        self._known: list[Candidates] = []

    def __len__(self) -> int:
        return len(self.rows)

    def clear(self) -> None:
        """Forget all distances and features of the candidates."""
        self._known.clear()

    def asked(self, module: torch.nn.Module, columns: Columns = None) -> Asked:
        """Return what knows the distances of the kernels of a module, for :func:`with_candidates`.

        Args:
            module: An acquisition function or a model.
            columns: Columns of the inputs of the kernels that hold the candidates; ``None`` if the
                candidates are whole inputs.
        """
        used: list[Candidates] = []
        asked = Asked()
        for kernel, block in distribution_kernels(module):
            inside = block if columns is None else Block(block.kind, block.dim)
            distance = kernel.distance
            known = _first(used, distance, inside) or _first(self._known, distance, inside)
            if columns is None or block.columns == columns:
                if known is None:
                    base = distance.distance if isinstance(distance, PrincipalDistance) else None
                    outer = None if base is None else _first(used, base, inside)
                    known = Candidates(distance, inside, self.rows, self.memory, outer)
                asked.known.setdefault(distance, known)
            if known is not None and known not in used:
                used.append(known)
        # Those of other columns stay, because several parts of a candidate may be in the same pool.
        # Those that the module does not use belong to the distances of earlier models.
        self._known = used
        return asked


class Asked:
    """The candidates of a pool that are being evaluated.

    Attributes:
        indices: Their numbers in the pool, one for each batch element.
        rows: Their rows, which are not compared if a kernel sees this tensor itself.
        constant: Whether candidates do not move, although the inputs that hold them require a gradient.
        known: What is known of all candidates, for each distance of a model.
    """

    def __init__(self) -> None:
        self.indices = torch.tensor([])
        self.rows = torch.tensor([])
        self.constant = False
        self.known: dict[Distance, Candidates] = {}


def with_candidates(module: ModuleT, several: Sequence[Asked]) -> ModuleT:
    """Return a module that shares everything with another, except that its kernels look distances up.

    Args:
        module: An acquisition function.
        several: The candidates of each pool. Their indices are set before each evaluation.
    """
    found: dict[torch.nn.Module, torch.nn.Module] = {}
    for distance in dict.fromkeys(distance for asked in several for distance in asked.known):
        sources = [(asked, asked.known[distance]) for asked in several if distance in asked.known]
        found[distance] = PoolDistance(distance, sources)
    return _with_parts(module, found)


def _with_parts(module: ModuleT, found: dict[torch.nn.Module, torch.nn.Module]) -> ModuleT:
    """Return a module with some parts of its parts replaced; all others are shared."""
    if module not in found:
        own = module._modules
        parts = {n: part and _with_parts(part, found) for n, part in own.items()}
        other = module
        if any(parts[name] is not part for name, part in own.items()):
            other = object.__new__(type(module))
            vars(other).update(vars(module))
            kept = {name: dict(vars(module)[name]) for name in ("_parameters", "_buffers")}
            vars(other).update(kept, _modules=parts)
        found[module] = other
    replaced: Any = found[module]
    return replaced


class PoolDistance(DistanceWrapper):
    """A distance that looks squared distances of the candidates that are being evaluated up.

    BoTorch joins every candidate of a batch with the same pending points, baseline points and training
    rows. Each position along the second to last axis therefore holds either the candidates, one for each
    batch element, or the same cloud in all batch elements. For any other rows, the distance computes.

    Args:
        distance: The distance, which gives the same results.
        sources: Candidates that are being evaluated, and what this distance knows of them.
    """

    transparent = True

    def __init__(self, distance: Distance, sources: Sequence[tuple[Asked, Candidates]]) -> None:
        super().__init__(distance)
        self.sources = sources
        self.training = distance.training

    @property
    def ard_num_dims(self) -> int | None:  # type: ignore[override]
        """Number of lengthscales of a kernel."""
        return self.distance.ard_num_dims

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent clouds as the distance does."""
        return self.distance.represent(points, weights)

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute squared distances to the origin of inner products of the distance."""
        return self.distance.squared_norms(rows)

    def forward(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Look squared distances up, or compute them."""
        x2 = x1 if x2 is None else x2
        for asked, known in [] if diag else self.sources:
            first = self._places(asked, known, x1)
            second = first if x2 is x1 or first is None else self._places(asked, known, x2)
            if first is None or second is None or (first.all() and second.all()):
                continue
            squared = known.squared[asked.indices]
            if rows_of(x1).dim() == 2:  # one matrix, such as of the candidates beside training rows
                if first.any() or not second.all():
                    continue
                return squared[:, second]
            found = squared[:, None, second]
            if first.any():
                fixed = known.between[first][:, second] if second.any() else 0
                found = found * (first == 0)[:, None] + squared[:, first, None] * (second == 0)
                found = found + fixed
            batch_shape = torch.broadcast_shapes(*(rows_of(x).shape[:-2] for x in (x1, x2)))
            found = found.reshape(len(found), *[1] * (len(batch_shape) - 1), *found.shape[1:])
            return found.expand(*batch_shape, -1, -1)
        return self.distance(x1, x2, diag=diag)

    def represented(self, rows: Rows) -> Tensor:
        """Look the features of rows that hold candidates up, or compute them."""
        given = rows_of(rows)
        for asked, known in self.sources:
            places = self._places(asked, known, rows)
            # Of a distance with one lengthscale, only features of candidates are kept.
            if places is None or places.all() or not (self.ard_num_dims or known.holds(places)):
                continue
            found = known.features_of(asked.indices)
            found = found.reshape(len(given), *[1] * (given.dim() - 2), -1)
            if not places.any():
                return found
            return torch.where((places == 0).unsqueeze(-1), found, known.features_at(places))
        return self.distance.represented(rows)

    def _places(self, asked: Asked, known: Candidates, held: Rows) -> Tensor | None:
        """Return the number of each position of rows among known clouds, if each has one."""
        rows = rows_of(held)
        width, axes = rows.shape[-1], rows.dim() - 2
        if (rows.requires_grad and not asked.constant) or width < known.rows.shape[-1]:
            return None
        rows = rows.detach()
        if rows.numel() == asked.rows.numel() and rows.data_ptr() == asked.rows.data_ptr():
            return torch.zeros(1, dtype=torch.long, device=rows.device)
        indices = asked.indices
        if (once := drop_copies(rows)).dim() == 2 and (len(indices) > 1 or not axes):
            if isinstance(held, EmbeddedRows):  # such as the training rows of a model
                return held.derived(("places", known), lambda: known.places(once))
            return known.places(once)
        if len(rows) != len(indices):
            return None
        candidates = pad_rows(known.rows[indices], width)
        candidates = candidates.reshape(len(rows), *[1] * (axes - 1), width)
        first = rows[(0,) * axes]
        moving = torch.stack([(row == candidates).all() for row in rows.unbind(-2)])
        for place in (~moving).nonzero().flatten().tolist():
            if not (rows[..., place, :] == first[place]).all():
                return None
        places = torch.zeros_like(moving, dtype=torch.long)
        if not moving.all():
            places[~moving] = known.places(first[~moving])
        return places


class Candidates:
    """What a pool knows of its candidates for one distance: features, and distances to other clouds.

    Each other cloud that was seen has a number; that of the candidates themselves is 0.

    Args:
        distance: The distance, of which a copy is kept.
        block: What the distance reads.
        rows: The ``N`` candidates.
        memory: Number of bytes available for the features of the candidates.
        base: Candidates for the distance whose principal components are compared, if there are any.
    """

    def __init__(
        self,
        distance: Distance,
        block: Block,
        rows: Tensor,
        memory: float,
        base: Candidates | None = None,
    ) -> None:
        self._state = state_of(distance)
        # Later changes of the parameters do not affect a copy.
        self.distance = copy.deepcopy(distance).requires_grad_(False)
        self.block = block
        self.rows = block.select(rows)
        self.squared = rows.new_zeros(len(rows), 1)
        self._memory = memory
        self._base = base
        self._centre = rows.new_zeros(())
        self._kept: tuple[Tensor, Tensor] | None = None
        self._numbers: dict[bytes, int] = {}
        self._others = self.rows[:0]
        self._points: list[Tensor] = []
        self._between = rows.new_zeros(1, 1)

    def serves(self, distance: Distance, block: Block) -> bool:
        """Whether these are the candidates for a distance with the same settings, and its block."""
        return block == self.block and self._state == state_of(distance)

    @torch.no_grad()
    def places(self, rows: Tensor) -> Tensor:
        """Return the numbers of ``M`` clouds, after adding those that are new."""
        keys = [row.tobytes().rstrip(b"\0") for row in rows.cpu().numpy()]  # without padding
        new = {key: i for i, key in enumerate(keys) if key not in self._numbers}
        if new:
            added = rows[list(new.values())]
            # One cloud at a time: matrix products with several columns are rounded differently. A
            # search sees clouds one by one, but all of them at once when it is resumed, and it must
            # then choose the same candidates.
            points = [self.distance.represented(row) for row in added.split(1)]
            columns = torch.cat([self._compared(*block, points) for block in self._blocks()])
            width = max(rows.shape[-1], self._others.shape[-1])
            self._others = torch.cat([pad_rows(self._others, width), pad_rows(added, width)])
            self.squared = torch.cat([self.squared, columns], dim=-1)
            if self.distance.ard_num_dims:
                self._points += points
            self._numbers |= {key: len(self._numbers) + i for i, key in enumerate(new, start=1)}
        return torch.tensor([self._numbers[key] for key in keys], device=rows.device).long()

    @property
    def between(self) -> Tensor:
        """Squared distances between the clouds of two numbers, zero for candidates."""
        if len(self._between) <= len(self._others):
            with torch.no_grad():
                found = self.distance.squared(self._others)
            self._between = torch.nn.functional.pad(found, (1, 0, 1, 0))
        return self._between

    @cached_property
    def features(self) -> Tensor:
        """Features of the candidates, ``N x D``."""
        return torch.cat([found + self._centre for found, _ in self._blocks()])

    def features_of(self, indices: Tensor) -> Tensor:
        """Return the features of some candidates, ``n x D``."""
        if self.distance.ard_num_dims or self._kept is None:
            return self.features[indices]
        return self._kept[0][indices].add_(self._centre)

    def holds(self, places: Tensor) -> bool:
        """Whether features of candidates alone are asked for, and kept."""
        return self._kept is not None and self.distance.euclidean and not bool(places.any())

    def features_at(self, places: Tensor) -> Tensor:
        """Return the features of the clouds of ``M`` numbers, ``M x D``, zero for candidates."""
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
        if self._kept is not None:
            yield from zip(*(each.split(_BLOCK) for each in self._kept), strict=True)
            return
        number, kept = 0, None
        for found in self._represented():
            if self.distance.euclidean:
                if not number:
                    self._centre = found.mean(0)  # close to all features, which preserves digits
                found = found - self._centre
            norms = torch.einsum("nd,nd->n", found, found)
            yield found, norms
            if len(self.rows) * found[0].nbytes <= self._memory:
                if kept is None:
                    kept = (
                        found.new_empty(len(self.rows), found.shape[-1]),
                        self.squared.new_empty(len(self.rows)),
                    )
                place = slice(number, number + len(found))
                kept[0][place], kept[1][place] = found, norms
            number += len(found)
        self._kept = kept

    def _represented(self) -> Iterator[Tensor]:
        if self._base is not None and isinstance(self.distance, PrincipalDistance):
            for found, _ in self._base._blocks():
                # Components are linear in features, of which a sum would be another copy.
                yield self.distance.project(found) + self.distance.project(self._base._centre)
        else:
            for part in self.rows.split(_BLOCK):
                yield self.distance.represented(part)


def optimize_over_pool(
    acquisition: AcquisitionFunction,
    pool: Pool | Inputs | Tensor,
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
        pool: The candidates; mixed inputs have the encoding of the model. For several calls, use a
            :class:`Pool`, which remembers distances.
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
    if not isinstance(pool, Pool):
        encoding = getattr(getattr(acquisition, "model", None), "encoding", None)
        pool = Pool(pool, encoding=encoding)
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
    asked = pool.asked(acquisition)
    acquisition = with_candidates(acquisition, [asked])
    values: list[Tensor] = []
    if isinstance(acquisition, ThompsonSampling):
        with torch.no_grad():
            for asked.indices in left.split(batch_size):
                asked.rows = pool.rows[asked.indices].unsqueeze(-2)
                values.append(acquisition.values(asked.rows))
        places, best = _largest(torch.cat(values).mT[:q])
        return left[places], best

    def find(found: list[Tensor]) -> Tensor:
        choices = left[~torch.isin(left, torch.stack(found))] if found else left
        parts = []
        for asked.indices in choices.split(batch_size):
            asked.rows = pool.rows[asked.indices].unsqueeze(-2)
            parts.append(acquisition(asked.rows))
        best, place = torch.cat(parts).max(0)  # NaN if any value is
        values.append(best)
        return choices[place]

    with torch.no_grad():
        found = one_by_one(acquisition, q, find, lambda found: pool.rows[torch.stack(found)])
    if torch.stack(values).isnan().any():
        raise ValueError(f"Expected values of {acquisition} that are not NaN, got {values}.")
    return torch.stack(found), torch.stack(values)


def _first(known: Iterable[Candidates], distance: Distance, block: Block) -> Candidates | None:
    return next((each for each in known if each.serves(distance, block)), None)


def _largest(paths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the place and the value of the largest of each of ``q x N`` paths, no place twice."""
    left = paths.clone()
    places = paths.new_empty(len(paths), dtype=torch.long)
    for number in range(len(paths)):
        places[number] = left[number].argmax()
        left[:, places[number]] = -torch.inf
    return places, paths.gather(-1, places.unsqueeze(-1)).squeeze(-1)
