"""Maximise an acquisition function over several parts: some by evaluation, the others by gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch, sample_truncated_normal_perturbations
from torch import Tensor

from gp_distributions.bayesopt.pool_distances import PoolLookUp
from gp_distributions.distances.evaluation import looking_up

# Smallest improvement that counts, relative to a value of less than one.
_LEAST = 1e-6
# Largest number of turns of all parts. A few are enough, unless improvements become ever smaller.
_MOST_TURNS = 50
# Standard deviation of perturbations of the best candidates, relative to the range between bounds.
_AROUND_BEST = 0.1


@dataclass(frozen=True, eq=False)
class Choices:
    """The choices of a part that can be listed.

    Attributes:
        columns: The columns of the inputs that hold a choice.
        rows: What these columns are for each choice, ``N x columns``.
        look_up: Look-up of the distances of the choices, by their position, or ``None``.
    """

    columns: slice
    rows: Tensor
    look_up: PoolLookUp | None


@dataclass(frozen=True, eq=False)
class States:
    """Candidates between which an alternation moves.

    Attributes:
        rows: The inputs, ``S x width``.
        choices: Position of the choice of each finite part, ``S x parts``.
    """

    rows: Tensor
    choices: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Tensor) -> States:
        return States(self.rows[index], self.choices[index])

    @classmethod
    def joined(cls, states: Sequence[States]) -> States:
        """Return several sets of states as one."""
        return cls(torch.cat([s.rows for s in states]), torch.cat([s.choices for s in states]))


class Alternation:
    """Alternates between the finite parts, each in turn, and all continuous parts together.

    Args:
        acquisition: The acquisition function.
        finite: The finite parts.
        moving: Numbers of the columns that move by gradients.
        limits: Bounds of these columns, ``2 x columns``.
        constant: Whether no distribution moves by gradients, so that distances can be looked up.
        taken: Candidates to exclude.
        maxiter: Maximum number of iterations of each run of L-BFGS-B.
        batch_size: Number of inputs to evaluate at a time.
    """

    def __init__(
        self,
        acquisition: AcquisitionFunction,
        finite: Sequence[Choices],
        moving: Sequence[int],
        limits: Tensor,
        *,
        constant: bool,
        taken: States,
        maxiter: int = 100,
        batch_size: int = 2048,
    ) -> None:
        self.acquisition = acquisition
        self.finite = list(finite)
        self.moving = list(moving)
        self.limits = limits
        self.constant = constant
        self.taken = taken
        self.maxiter = maxiter
        self.batch_size = batch_size
        held = {c for part in finite for c in range(part.columns.start, part.columns.stop)}
        self._others = [c for c in range(taken.rows.shape[-1]) if c not in held]

    def maximise(self, states: States) -> tuple[States, Tensor]:
        """Moves each state until nothing improves, or for 50 turns; states that meet continue as one.

        Args:
            states: The starts.

        Returns:
            The states that were reached, and their values.
        """
        if not len(states):
            return states, states.rows.new_zeros(0)
        rows = states.rows.clone()
        if self.moving:
            rows[:, self.moving] = rows[:, self.moving].clamp(*self.limits)
        states = States(rows, states.choices)
        values = self.values(states)
        done: list[tuple[States, Tensor]] = []
        for turn in range(_MOST_TURNS):
            if not len(states):
                break
            before = values
            for part in range(len(self.finite)):
                states, values = self._choose(part, states, values)
            if self.moving:
                states, values = self._move(states, values)
            # Without any other kind of part, a single pass over one part finds its maximum.
            alone = len(self.finite) + bool(self.moving) == 1
            moved = _improves(values, before) & (not alone and turn < _MOST_TURNS - 1)
            done.append((states[~moved], values[~moved]))
            kept = moved & self._first_of_kind(states, values)
            states, values = states[kept], values[kept]
        return States.joined([s for s, _ in done]), torch.cat([v for _, v in done])

    def starts(self, leading: States, random: States, count: int) -> States:
        """Returns at most ``count`` states to start from, the best candidates so far first.

        BoTorch's heuristic draws the others by their values, from random candidates and from as many
        perturbations of the best candidates in their continuous parts.
        """
        pool = States.joined([random, *self._perturbed(leading, len(random))])
        values = self.values(pool)
        left = values.isfinite().nonzero().squeeze(-1)
        count -= len(leading)
        if 0 < count < len(left) and bool(values[left].std() > 0):
            places = left.to(values).reshape(-1, 1, 1)
            left = initialize_q_batch(places, values[left], count)[0].flatten().long()
        return States.joined([leading, pool[left[:count]]])

    def _perturbed(self, leading: States, least: int) -> list[States]:
        """Returns at least the given number of candidates close to the best ones."""
        if not self.moving or not len(leading):
            return []
        count = -(-least // len(leading))
        rows = leading.rows.repeat_interleave(count, dim=0)
        starts = leading.rows[:, self.moving].clamp(*self.limits).split(1)
        rows[:, self.moving] = torch.cat(
            [
                sample_truncated_normal_perturbations(
                    start, n_discrete_points=count, sigma=_AROUND_BEST, bounds=self.limits
                )
                for start in starts
            ]
        )
        return [States(rows, leading.choices.repeat_interleave(count, dim=0))]

    @torch.no_grad()
    def values(self, states: States) -> Tensor:
        """Evaluates the acquisition function; it is minus infinity at candidates that are taken."""
        values = self._evaluate(states)
        equal = self._equal(states, None).any(-1)
        return values.masked_fill(equal, -torch.inf)

    @torch.no_grad()
    def _choose(self, part: int, states: States, values: Tensor) -> tuple[States, Tensor]:
        """Moves each state to the best choice of a finite part, by evaluating all of its choices."""
        columns, rows = self.finite[part].columns, self.finite[part].rows
        count = len(rows)
        found: list[Tensor] = []
        for pairs in torch.arange(len(states) * count, device=rows.device).split(self.batch_size):
            start = states[pairs.div(count, rounding_mode="floor")]
            start.rows[:, columns] = rows[pairs % count]
            start.choices[:, part] = pairs % count
            found.append(self._evaluate(start))
        table = torch.cat(found).view(len(states), count)
        state, taken = self._equal(states, part).nonzero(as_tuple=True)
        table[state, self.taken.choices[taken, part]] = -torch.inf
        best, choice = table.max(-1)
        better = _improves(best, values)
        moved = States(states.rows.clone(), states.choices.clone())
        moved.rows[better, columns] = rows[choice[better]]
        moved.choices[better, part] = choice[better]
        return moved, torch.where(better, best, values)

    def _move(self, states: States, values: Tensor) -> tuple[States, Tensor]:
        """Moves the continuous parts of all states by L-BFGS-B, with the finite parts fixed."""
        number = torch.arange(len(states)).to(states.rows).unsqueeze(-1)
        starts = torch.cat([number, states.rows[:, self.moving]], dim=-1)
        # The first column tells states apart. As it has no gradient, it does not move.
        bounds = torch.cat([number.new_tensor([[-1.0], [len(states)]]), self.limits], dim=-1)
        found, _ = optimize_acqf(
            _Held(self, states),
            bounds,
            q=1,
            num_restarts=len(states),
            batch_initial_conditions=starts.unsqueeze(-2),
            return_best_only=False,
            retry_on_optimization_warning=False,
            options={"maxiter": self.maxiter, "batch_limit": len(states)},
        )
        rows = states.rows.clone()
        rows[:, self.moving] = found[:, 0, 1:].detach()
        after = self.values(States(rows, states.choices))
        better = _improves(after, values)
        rows = torch.where(better.unsqueeze(-1), rows, states.rows)
        return States(rows, states.choices), torch.where(better, after, values)

    def _evaluate(self, states: States) -> Tensor:
        """Evaluates the acquisition function at any number of states."""
        values = []
        batches = zip(
            *(t.split(self.batch_size) for t in (states.rows, states.choices)), strict=True
        )
        for rows, choices in batches:
            with self.serving(choices):
                values.append(self.acquisition(rows.unsqueeze(-2)))
        return torch.cat(values)

    @contextlib.contextmanager
    def serving(self, choices: Tensor, *, constant: bool = False) -> Iterator[None]:
        """Look up the distances of the given choices, one row of positions for each input."""
        look_ups: list[PoolLookUp] = []
        for part, chosen in zip(self.finite, choices.unbind(-1), strict=True):
            if part.look_up is not None:
                part.look_up.batch, part.look_up.constant = chosen, constant
                look_ups.append(part.look_up)

        def known(distance: Any, x1: Tensor, x2: Tensor, diag: bool) -> Tensor | None:
            found = (look_up(distance, x1, x2, diag) for look_up in look_ups)
            return next((squared for squared in found if squared is not None), None)

        with looking_up(known if look_ups else None):
            yield

    def _equal(self, states: States, free: int | None) -> Tensor:
        """Which states agree with which taken candidates in all parts but the finite part ``free``."""
        chosen = [part for part in range(len(self.finite)) if part != free]
        pairs = (
            (states.choices[:, chosen], self.taken.choices[:, chosen]),
            (states.rows[:, self._others], self.taken.rows[:, self._others]),
        )
        same = [(a.unsqueeze(1) == b.unsqueeze(0)).all(-1) for a, b in pairs]
        return same[0] & same[1]

    def _first_of_kind(self, states: States, values: Tensor) -> Tensor:
        """Which states are the best of those with the same choices and nearly the same numbers."""
        width = self.limits[1] - self.limits[0]
        places = ((states.rows[:, self.moving] - self.limits[0]) / width * 1e3).round()
        keys = torch.cat([states.choices.to(places), places], dim=-1).tolist()
        first: dict[tuple[float, ...], int] = {}
        for state in values.argsort(descending=True).tolist():
            first.setdefault(tuple(keys[state]), state)
        kept = torch.zeros(len(states), dtype=torch.bool, device=values.device)
        kept[list(first.values())] = True
        return kept


class _Held(AcquisitionFunction):
    """An acquisition function of the columns that move, with the others as in given states."""

    def __init__(self, alternation: Alternation, states: States) -> None:
        super().__init__(alternation.acquisition.model)
        self.alternation = alternation
        self.states = states

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate at a ``b x 1 x (1 + columns)`` tensor of numbers of states and columns."""
        states = self.states[X[:, 0, 0].detach().round().long()]
        moving = torch.tensor(self.alternation.moving, device=X.device)
        rows = states.rows.index_copy(-1, moving, X[:, 0, 1:])
        with self.alternation.serving(states.choices, constant=self.alternation.constant):
            values: Tensor = self.alternation.acquisition(rows.unsqueeze(-2))
        return values


def _improves(values: Tensor, before: Tensor) -> Tensor:
    """Whether values exceed earlier ones; minus infinity does not exceed itself."""
    return values - before > _LEAST * before.abs().clamp_max(1)
