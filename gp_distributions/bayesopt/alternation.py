"""Maximise an acquisition function over several parts: some by evaluation, the others by gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim.initializers import initialize_q_batch
from torch import Tensor

from gp_distributions.bayesopt.parts import Plain, Search
from gp_distributions.bayesopt.proposing import climb, derived_seed, one_by_one, seeded
from gp_distributions.warnings import JitterWarning, collected

# A function of the states of a part.
Moves: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

# Largest number of turns of all parts. A few are enough, unless improvements become ever smaller.
_MOST_TURNS = 50
# Standard deviation of perturbations of the best candidates, relative to the range between bounds.
_AROUND_BEST = 0.1
# Number of states to evaluate at a time.
_BATCH = 2048


@dataclass(frozen=True, eq=False)
class Alternation:
    """Alternates between parts that can be listed, each in turn, and all others together.

    BoTorch's ``optimize_acqf_mixed_alternating`` does so as well, but tries only 20 values of a part in
    each turn, whichever Python's global random numbers choose: too few of a pool.

    A state is a candidate as a row of numbers: the choice of a part that can be listed is one number,
    its position among all.

    Attributes:
        value: The acquisition function, as a function of ``b x 1 x columns`` states.
        moves: The columns of each part, and its :meth:`Part.neighbours`.
        moving: Numbers of the columns that move by gradients.
        limits: Bounds of these columns, ``2 x columns``.
        taken: States to exclude.
        maxiter: Maximum number of iterations of each run of L-BFGS-B.
        least: Smallest improvement that counts, relative to a value of less than one.
    """

    value: Callable[[Tensor], Tensor]
    moves: Sequence[tuple[slice, Moves]]
    moving: Sequence[int]
    limits: Tensor
    taken: Tensor
    maxiter: int
    least: float = 1e-6

    def maximise(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Moves each state until nothing improves, or for 50 turns; states that meet continue as one.

        Args:
            states: The starts.

        Returns:
            The states that were reached, and their values.
        """
        values = self.values(states)
        done: list[tuple[Tensor, Tensor]] = []
        for _ in range(_MOST_TURNS):
            if not len(states):
                break
            before = values
            for place, neighbours in self.moves:
                states, values = self._exchange(place, neighbours, states, values)
            if self.moving:
                reached, _ = climb(self.value, states, self.moving, self.limits, self.maxiter)
                states, values = self._better(reached, self.values(reached), states, values)
            moved = self._improves(values, before)
            done.append((states[~moved], values[~moved]))
            states, values = self._distinct(states[moved], values[moved])
        states, values = map(torch.cat, zip(*done, (states, values), strict=True))
        return states, values

    def starts(self, leading: Tensor, random: Tensor, count: int) -> Tensor:
        """Returns at most ``count`` states to start from, the best candidates so far first.

        BoTorch's heuristic draws the others by their values, from random candidates and from as many
        perturbations of the best candidates in the columns that move.
        """
        pool = random
        if self.moving and len(leading):
            near = leading.repeat_interleave(-(-len(random) // len(leading)), dim=0)
            width = self.limits[1] - self.limits[0]
            noise = torch.randn_like(near[:, self.moving]) * _AROUND_BEST * width
            near[:, self.moving] = (near[:, self.moving] + noise).clamp(*self.limits)
            pool = torch.cat([random, near])
        values = self.values(pool)
        finite = values.isfinite()
        pool, values, count = pool[finite], values[finite], count - len(leading)
        if 0 < count < len(pool) and values.std() > 0:
            pool = initialize_q_batch(pool.unsqueeze(1), values, count)[0].squeeze(1)
        return torch.cat([leading, pool[:count]])

    @torch.no_grad()
    def values(self, states: Tensor) -> Tensor:
        """Evaluates the acquisition function; it is minus infinity at candidates that are taken."""
        found = [states.new_zeros(0)]
        for batch in states.split(_BATCH) if len(states) else ():
            equal = (batch.unsqueeze(1) == self.taken).all(-1).any(-1)
            # The joint covariance with a pending candidate close by is singular.
            with collected(JitterWarning):
                values = self.value(batch.unsqueeze(1))
            found.append(values.masked_fill(equal, -torch.inf))
        return torch.cat(found)

    def _exchange(
        self, place: slice, neighbours: Moves, states: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Moves each state to the best of the neighbours of a part, by evaluating all of them."""
        near, valid = neighbours(states[:, place])
        if not near.shape[1]:
            return states, values
        every = states.unsqueeze(1).repeat(1, near.shape[1], 1)
        every[..., place] = near
        found = values.new_full(valid.shape, -torch.inf)
        found[valid] = self.values(every[valid])
        best, choice = found.max(-1)
        return self._better(every[torch.arange(len(states)), choice], best, states, values)

    def _better(
        self, reached: Tensor, after: Tensor, states: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns states that were reached where they are better than those before."""
        better = self._improves(after, values)
        states = torch.where(better.unsqueeze(-1), reached, states)
        return states, torch.where(better, after, values)

    def _improves(self, values: Tensor, before: Tensor) -> Tensor:
        """Whether values exceed earlier ones; minus infinity does not exceed itself."""
        return values - before > self.least * before.abs().clamp_max(1)

    def _distinct(self, states: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the best of those states with the same choices and nearly the same numbers."""
        order = values.argsort(descending=True)
        places = states[order]
        places[:, self.moving] /= self.limits[1] - self.limits[0]
        groups = places.round(decimals=3).unique(dim=0, return_inverse=True)[1].tolist()
        kept = order[[groups.index(group) for group in sorted(set(groups))]]
        return states[kept], values[kept]


class AlternatingSearch(Search):
    """Base class of searches that maximise by an :class:`Alternation`, from the best and random ones.

    Attributes:
        num_restarts: Number of starts. Half of them are the best candidates so far.
        raw_samples: Number of random candidates from which the other starts are chosen.
    """

    num_restarts: int
    raw_samples: int

    @abstractmethod
    def alternation(self, acquisition: AcquisitionFunction, taken: Tensor) -> Alternation:
        """Returns the alternation of parts, given the states that are taken."""

    @abstractmethod
    def reached(self, alternation: Alternation, state: Tensor) -> Any:
        """Returns the candidate, as plain data, of the best state that was reached."""

    def states(self, candidates: Plain) -> Tensor:
        """Converts candidates to states, by default their inputs."""
        return self.inputs(candidates)

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[Any]:
        """Finds candidates one after the other, each with the previous ones as pending points."""

        def find(found: list[Any]) -> Any:
            own = derived_seed(seed, len(found))
            with seeded(own, self.states(best[:1]).device):
                return self._maximum(acquisition, [*taken, *found], best, own)

        return one_by_one(acquisition, q, find, self.inputs)

    def _maximum(
        self, acquisition: AcquisitionFunction, taken: Plain, best: Plain, seed: int
    ) -> Any:
        alternation = self.alternation(acquisition, self.states(taken))
        leading = self.states([self.within(c) for c in best[: -(-self.num_restarts // 2)]])
        random = self.states(self.initial(self.raw_samples, seed))
        starts = alternation.starts(leading, random, self.num_restarts)
        states, values = alternation.maximise(starts)
        # All maxima are taken, as they may be if few candidates are left.
        if not (values > -torch.inf).any():
            states = self.states(self.initial(len(taken) + self.raw_samples, seed))
            values = alternation.values(states)
        top = int(values.argmax())
        if not values[top] > -torch.inf:
            raise ValueError(
                "Expected a candidate that is left and has a value of the acquisition function, got "
                f"{len(taken)} candidates that are taken and the value {float(values[top])}."
            )
        return self.reached(alternation, states[top])
