"""Search over shapes, intervals and categories together."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.acquisition.penalized import PenalizedAcquisitionFunction
from botorch.exceptions import UnsupportedError
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.optim.initializers import initialize_q_batch, sample_truncated_normal_perturbations
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.bayesopt.alternation import Alternation, FinitePart, States
from gp_distributions.bayesopt.covariate_searches import CategorySearch, IntervalSearch
from gp_distributions.bayesopt.free_shapes import Penalty
from gp_distributions.bayesopt.mixed_rows import JoinParts
from gp_distributions.bayesopt.priors import covariate_lengthscale_priors
from gp_distributions.bayesopt.records import candidate_key
from gp_distributions.bayesopt.search import ContinuousSearch, FiniteSearch, Plain, Search
from gp_distributions.bayesopt.searches import DesignSearch
from gp_distributions.kernels.mixed import mixed_kernel
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.encoding import (
    CovariateEncoding,
    Levels,
    MixedEncoding,
    Scaling,
)
from gp_distributions.rows.columns import Slots
from gp_distributions.rows.layout import Block

# Standard deviation of perturbations of the best candidates, relative to the range between bounds.
_AROUND_BEST = 0.1


class MixedSearch(Search):
    """Search over several parts together, such as a shape, an angle and a material.

    A candidate is a dictionary with the candidate of each part: an index for a pool, a tensor for
    designs, a cloud for free shapes, a number for an interval, and a category.

    The acquisition function is maximised jointly, from the best candidates so far and from random ones:
    pools and categories by evaluation of all their elements with the other parts fixed, intervals,
    designs and free shapes by L-BFGS-B with pools and categories fixed, in turn until nothing improves.
    Distances between a pool and the evaluated shapes are computed once, for all values of the other
    parts.

    Args:
        num_restarts: Number of starts of each optimisation. Half of them are the best candidates so far.
        raw_samples: Number of random candidates from which the other starts are chosen, together with
            the same number of perturbations of the best candidates. At least ``num_restarts``.
        **parts: The parts by name: a :class:`PoolSearch`, :class:`DesignSearch` or :class:`FreeSearch`;
            a tuple of two numbers, the bounds of an interval; or a list of categories.

    Attributes:
        parts: The search of each part, by name.
        encoding: The layout of the rows that the kernel sees, for :func:`mixed_kernel`. Numbers are
            scaled from their bounds to [0, 1].
        input_transform: Input transform of a model on the inputs of this search; ``None`` if there are
            neither designs nor several parts with clouds.

    Raises:
        TypeError: If there are no parts, or a part is none of these.
        ValueError: If the kind of the distributions of a part is not known, as for a pool of rows, or a
            number or a list of categories is not valid.

    Example:
        >>> import torch
        >>> from gp_distributions import MixedSearch, PointClouds, PoolSearch, ShapeOptimizer
        >>> clouds = PointClouds(torch.arange(20, dtype=torch.float64).reshape(10, 2, 1) / 10)
        >>> search = MixedSearch(shape=PoolSearch(clouds), angle=(0.0, 10.0), material=["oak", "ash"])
        >>> optimizer = ShapeOptimizer(search, initial=3, restarts=0)
        >>> def measure(candidate):
        ...     height = clouds.points[candidate["shape"]].mean().item()
        ...     return -(height - 1) ** 2 - (candidate["angle"] / 10 - 0.3) ** 2
        >>> candidate, value = optimizer.run(measure, 6, progress=False).best
        >>> list(candidate)
        ['shape', 'angle', 'material']
    """

    def __init__(self, /, *, num_restarts: int = 8, raw_samples: int = 256, **parts: Any) -> None:
        if not parts:
            raise TypeError(
                "Expected at least one part, such as shape=PoolSearch(clouds), got none."
            )
        self.parts: dict[str, Search] = {name: _read(part, name) for name, part in parts.items()}
        self.num_restarts = integer(num_restarts, "num_restarts")
        self.raw_samples = integer(raw_samples, "raw_samples", least=self.num_restarts)
        self.encoding = MixedEncoding({n: _block(part, n) for n, part in self.parts.items()})
        repeated = [n for n, place in self.encoding.columns.items() if isinstance(place, Slots)]
        self._columns: dict[str, slice] = {}
        firsts = {name: part.inputs(part.initial(1, 0)) for name, part in self.parts.items()}
        start = 0
        for name in sorted(self.parts, key=repeated.__contains__):
            stop = start + firsts[name].shape[-1]
            self._columns[name] = slice(start, stop)
            start = stop
        # Numbers take the dtype and device of clouds.
        like = [first for name, first in firsts.items() if not _is_covariate(self.parts[name])]
        self._like = (like or list(firsts.values()))[0][:0]
        transforms = {name: t for name, part in self.parts.items() if (t := _transform(part))}
        if transforms or len(repeated) > 1:
            self.input_transform = JoinParts(self._columns, self.encoding, transforms)

    def default_kernel(self, batch_shape: torch.Size) -> Kernel | None:
        """Returns :func:`mixed_kernel` with priors for the lengthscales of covariates."""
        return covariate_lengthscale_priors(mixed_kernel(self.encoding, batch_shape=batch_shape))

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and the descriptions of the parts."""
        return {"kind": "mixed", "parts": {n: p.describe() for n, p in self.parts.items()}}

    def initial(self, count: int, seed: int) -> list[dict[str, Any]]:
        """Returns the first ``count`` candidates of a random sequence without repetition.

        Intervals and designs follow one scrambled Sobol sequence. Pools, categories and free shapes
        follow sequences of their own, which start anew at their ends.
        """
        found = self._designs(count, seed)
        lengths: list[int] = [count] if found else []
        for place, (name, part) in enumerate(self.parts.items()):
            if name in found:
                continue
            sequence = part.initial(count, _seed(seed, place, 0))
            lengths.append(len(sequence))
            cycles = itertools.count(1)
            while len(sequence) < count:
                again = part.initial(count, _seed(seed, place, next(cycles)))
                sequence = [*sequence, *again[: count - len(sequence)]]
            found[name] = sequence
        longest = max(lengths)
        zipped = zip(*(found[name] for name in self.parts), strict=True)
        joint = [dict(zip(self.parts, values, strict=True)) for values in zipped]
        if longest == count:
            return joint  # the longest sequence does not repeat itself
        joint = joint[:longest]
        seen = set(map(candidate_key, joint))
        every = [
            part.initial(count, _seed(seed, i, 0)) for i, part in enumerate(self.parts.values())
        ]
        rest = (dict(zip(self.parts, v, strict=True)) for v in itertools.product(*every))
        new = (candidate for candidate in rest if candidate_key(candidate) not in seen)
        return [*joint, *itertools.islice(new, count - longest)]

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the inputs of all parts as one tensor."""
        if not candidates:
            return self._like.new_empty(0, max(columns.stop for columns in self._columns.values()))
        columns = [
            self.parts[name].inputs([candidate[name] for candidate in candidates])
            for name in self._columns
        ]
        return torch.cat([column.to(self._like) for column in columns], dim=-1)

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[dict[str, Any]]:
        """Finds candidates one after the other, each with the previous ones as pending points."""
        if isinstance(acquisition, OneShotAcquisitionFunction):
            raise UnsupportedError(
                "Expected an acquisition function that is not one-shot, got "
                f"{type(acquisition).__name__}. Use, for example, qLogNoisyExpectedImprovement."
            )
        before = getattr(acquisition, "X_pending", None)
        found: list[dict[str, Any]] = []
        try:
            for step in range(q):
                avoid = [*taken, *found]
                found.append(self._maximum(acquisition, avoid, best, _seed(seed, step)))
                if len(found) < q:
                    pending = self.inputs(found)
                    pending = pending if before is None else torch.cat([before, pending])
                    acquisition.set_X_pending(pending)
        finally:
            if q > 1:
                acquisition.set_X_pending(before)
        return found

    def show(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the dictionary of the candidates of the parts as users see them."""
        return {name: part.show(candidate[name]) for name, part in self.parts.items()}

    def plain(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the dictionary of the candidates of the parts as plain data."""
        self._check(candidate)
        return {name: part.plain(candidate[name]) for name, part in self.parts.items()}

    def read(self, data: Any) -> dict[str, Any]:
        """Returns the candidate if each part is valid."""
        self._check(data)
        return {name: part.read(data[name]) for name, part in self.parts.items()}

    def _check(self, candidate: Any) -> None:
        if not isinstance(candidate, Mapping) or candidate.keys() != self.parts.keys():
            got = list(candidate) if isinstance(candidate, Mapping) else candidate
            raise ValueError(
                f"Expected a dictionary with the keys {list(self.parts)}, got {got!r:.200}."
            )

    def _designs(self, count: int, seed: int) -> dict[str, list[Any]]:
        """Returns the first candidates of all parts with bounds, from one Sobol sequence.

        Sequences of their own would be correlated.
        """
        bounded = {n: part for n, part in self.parts.items() if isinstance(part, DesignSearch)}
        if not bounded:
            return {}
        bounds = torch.cat([part.bounds.to(self._like) for part in bounded.values()], dim=-1)
        drawn = draw_sobol_samples(bounds, count, 1, seed=seed).squeeze(1)
        sizes = [len(part.moving) for part in bounded.values()]
        split = zip(bounded.items(), drawn.split(sizes, dim=-1), strict=True)
        return {name: part.read_inputs(columns) for (name, part), columns in split}

    def _maximum(
        self, acquisition: AcquisitionFunction, taken: Plain, best: Plain, seed: int
    ) -> dict[str, Any]:
        """Finds one candidate that is not taken."""
        alternation = self._alternation(acquisition, taken)
        leading = self._states(best[: -(-self.num_restarts // 2)])
        random = self._states(self.initial(self.raw_samples, seed))
        pool = _joined([random, *self._perturbed(leading, alternation, seed)])
        values = alternation.values(pool)
        chosen = _chosen(values, self.num_restarts - len(leading))
        states, reached = alternation.maximise(_joined([leading, pool[chosen]]))
        top = int(reached.argmax())
        if (
            reached[top] == -torch.inf
        ):  # all maxima are taken, as they may be if few candidates are left
            more = self.initial(len(taken) + self.raw_samples, seed)
            states = self._states(more)
            reached = alternation.values(states)
            top = int(reached.argmax())
        if not reached[top] > -torch.inf:
            raise ValueError(
                "Expected a candidate that is left and has a value of the acquisition function, got "
                f"{len(taken)} candidates that are taken and the value {float(reached[top])}."
            )
        return self._candidate(states, top)

    def _alternation(self, acquisition: AcquisitionFunction, taken: Plain) -> Alternation:
        places = self.encoding.columns
        finite = [
            FinitePart(
                self._columns[name],
                part.inputs(part.choices()).to(self._like),
                part.look_up(acquisition, places[name]),
            )
            for name, part in self._finite.items()
        ]
        moves = self._continuous
        limits = [part.limits.to(self._like) for part in moves.values()]
        moving = [self._columns[n].start + c for n, part in moves.items() for c in part.moving]
        return Alternation(
            self._penalized(acquisition),
            finite,
            moving,
            torch.cat(limits, dim=-1) if limits else self._like.new_zeros(2, 0),
            constant=all(isinstance(_block(p, n), CovariateEncoding) for n, p in moves.items()),
            taken=self._states(taken),
        )

    def _penalized(self, acquisition: AcquisitionFunction) -> AcquisitionFunction:
        """Subtracts the costs of all parts that have one."""
        for name, part in self._continuous.items():
            cost = part.cost
            if cost is not None:
                columns = self._columns[name]
                acquisition = PenalizedAcquisitionFunction(
                    acquisition, partial(_cost_of, cost, columns), 1.0
                )
        return acquisition

    def _perturbed(self, leading: States, alternation: Alternation, seed: int) -> list[States]:
        """Returns candidates close to the best ones in their continuous parts."""
        if not alternation.moving or not len(leading):
            return []
        count = -(-self.raw_samples // len(leading))
        found = []
        for state in leading.rows.split(1):
            near = sample_truncated_normal_perturbations(
                state[:, alternation.moving].clamp(*alternation.limits),
                n_discrete_points=count,
                sigma=_AROUND_BEST,
                bounds=alternation.limits,
            )
            rows = state.repeat(len(near), 1)
            rows[:, alternation.moving] = near
            found.append(rows)
        choices = leading.choices.repeat_interleave(count, dim=0)
        return [States(torch.cat(found), choices)]

    @property
    def _finite(self) -> dict[str, FiniteSearch]:
        return {n: part for n, part in self.parts.items() if isinstance(part, FiniteSearch)}

    @property
    def _continuous(self) -> dict[str, ContinuousSearch]:
        return {n: part for n, part in self.parts.items() if isinstance(part, ContinuousSearch)}

    def _states(self, candidates: Plain) -> States:
        device = self._like.device
        chosen = [
            [part.choices().index(candidate[name]) for name, part in self._finite.items()]
            for candidate in candidates
        ]
        choices = torch.tensor(chosen, dtype=torch.long, device=device)
        rows = self.inputs(candidates)
        return States(rows, choices.reshape(len(rows), len(self._finite)))

    def _candidate(self, states: States, index: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        finite = list(self._finite)
        for name, part in self.parts.items():
            if isinstance(part, ContinuousSearch):
                (found[name],) = part.read_inputs(
                    states.rows[index : index + 1, self._columns[name]]
                )
            else:
                choice = int(states.choices[index, finite.index(name)])
                found[name] = self._finite[name].choices()[choice]
        return found


def _read(part: Any, name: str) -> Search:
    if isinstance(part, FiniteSearch | ContinuousSearch):
        return part
    if isinstance(part, str | bytes) or not isinstance(part, Sequence):
        raise TypeError(
            f"Part {name!r}: expected a PoolSearch, DesignSearch or FreeSearch, an interval "
            f"(low, high), or a list of categories, got {type(part).__name__}. For a fixed set of "
            "clouds use PoolSearch(clouds)."
        )
    numeric = [isinstance(v, numbers.Real) and not isinstance(v, bool) for v in part]
    if isinstance(part, tuple) and len(part) == 2 and all(numeric):
        return IntervalSearch(*part)
    if len(part) == 2 and all(numeric):
        raise ValueError(
            f"Part {name!r}: expected an interval as a tuple, or categories, got the list "
            f"{list(part)}. Use {tuple(part)} for the interval, or text for two categories."
        )
    wrong = [value for value in part if not isinstance(value, str | bool | int | float)]
    if wrong:
        raise TypeError(
            f"Part {name!r}: expected categories as text, booleans or numbers, got {wrong[0]!r}."
        )
    return CategorySearch(part)


def _is_covariate(part: Search) -> bool:
    return isinstance(part, IntervalSearch | CategorySearch)


def _transform(part: Search) -> InputTransform | None:
    """Returns the transform from the inputs of a part to what the kernel sees, if there is one."""
    if isinstance(part, DesignSearch) and part.input_transform is None and not _is_covariate(part):
        return Normalize(part.bounds.shape[-1], bounds=part.bounds)
    return part.input_transform


def _block(part: Search, name: str) -> Block | CovariateEncoding:
    """Returns the block of the rows of mixed inputs that holds a part."""
    if isinstance(part, IntervalSearch):
        return CovariateEncoding({name: Scaling(part.low, part.high - part.low)})
    if isinstance(part, CategorySearch):
        return CovariateEncoding({name: Levels(part.levels)})
    if part.block is not None:
        return part.block
    if isinstance(part, DesignSearch) and part.input_transform is None:
        low, high = part.bounds.tolist()
        scales = {f"{i}": Scaling(a, b - a) for i, (a, b) in enumerate(zip(low, high, strict=True))}
        return CovariateEncoding(scales)
    raise ValueError(
        f"Part {name!r}: expected the kind and dimension of its distributions to be known, got "
        f"{type(part).__name__} without them. Give a PoolSearch PointClouds instead of rows, and a "
        "DesignSearch dim=."
    )


def _cost_of(cost: Penalty, columns: slice, X: Tensor) -> Tensor:
    return cost(X[..., columns])


def _seed(*entropy: int) -> int:
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) % 2**31


def _joined(states: Sequence[States]) -> States:
    return States(torch.cat([s.rows for s in states]), torch.cat([s.choices for s in states]))


def _chosen(values: Tensor, count: int) -> Tensor:
    """Returns the positions of starts, drawn by their values, with the best among them."""
    left = values.isfinite().nonzero().squeeze(-1)
    if count == 0 or len(left) <= count or not bool(values[left].std() > 0):
        return left[:count]
    found, _ = initialize_q_batch(left.to(values).reshape(-1, 1, 1), values[left], count)
    return found.flatten().long()
