"""Search over shapes, intervals and categories together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.penalized import PenalizedAcquisitionFunction
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.bayesopt.alternation import Alternation, Choices, States
from gp_distributions.bayesopt.free_shapes import Penalty
from gp_distributions.bayesopt.mixed_columns import PartColumns
from gp_distributions.bayesopt.mixed_initial import initial_candidates
from gp_distributions.bayesopt.one_by_one import one_by_one
from gp_distributions.bayesopt.part_reading import read_part
from gp_distributions.bayesopt.priors import covariate_lengthscale_priors
from gp_distributions.bayesopt.search import ContinuousPart, FinitePart, Part, Plain, Search
from gp_distributions.bayesopt.seeding import derived_seed, seeded
from gp_distributions.kernels.mixed import Structure, mixed_kernel
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.encoding import CovariateEncoding

_NO_BATCH = torch.Size()


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
            Default: the largest of the parts that have this option, else 8.
        raw_samples: Number of random candidates from which the other starts are chosen, together with
            the same number of perturbations of the best candidates. At least ``num_restarts``.
            Default: the largest of the parts that have this option, else 256.
        maxiter: Maximum number of iterations of each run of L-BFGS-B. Default: the largest of the parts
            that have this option, else 100.
        **parts: The parts by name: a :class:`PoolSearch`, :class:`DesignSearch` or :class:`FreeSearch`;
            a tuple of two numbers, the bounds of an ``bayesopt.Interval``; or a
            list, an array or a column of ``bayesopt.Categories``.

    Attributes:
        parts: The parts by name.
        encoding: The layout of the rows that the kernel sees, for :func:`mixed_kernel`. Numbers are
            scaled from their bounds to [0, 1].
        input_transform: Input transform of a model on the inputs of this search; ``None`` if there are
            neither decoders nor several parts with clouds.

    Raises:
        TypeError: If there are no parts, or a part is none of these.
        ValueError: If the kind of the distributions of a part is not known, as for a pool of rows,
            clouds differ in dtype or device, or a number or a list of categories is not valid.

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

    def __init__(
        self,
        /,
        *,
        num_restarts: int | None = None,
        raw_samples: int | None = None,
        maxiter: int | None = None,
        **parts: Any,
    ) -> None:
        if not parts:
            raise TypeError(
                "Expected at least one part, such as shape=PoolSearch(clouds), got none."
            )
        self.parts: dict[str, Part] = {name: read_part(part, name) for name, part in parts.items()}
        self.num_restarts = integer(self._option(num_restarts, "num_restarts", 8), "num_restarts")
        raw_samples = self._option(raw_samples, "raw_samples", max(256, self.num_restarts))
        self.raw_samples = integer(raw_samples, "raw_samples", least=self.num_restarts)
        self.maxiter = integer(self._option(maxiter, "maxiter", 100), "maxiter")
        self._columns = PartColumns(self.parts)
        self.encoding = self._columns.encoding
        self.input_transform = self._columns.input_transform

    def _option(self, given: int | None, name: str, default: int) -> int:
        if given is not None:
            return given
        options = [getattr(part, name) for part in self.parts.values() if hasattr(part, name)]
        return max(options, default=default)

    def default_kernel(self, batch_shape: torch.Size) -> Kernel:
        """Returns :meth:`kernel` with default kernels of all parts."""
        return self.kernel(batch_shape=batch_shape)

    def kernel(
        self,
        kernels: Mapping[str, Kernel] | None = None,
        *,
        structure: Structure = "product",
        batch_shape: torch.Size = _NO_BATCH,
    ) -> Kernel:
        """Make a :func:`mixed_kernel` with priors for the lengthscales of numbers and categories.

        Args:
            kernels: Kernels of some parts, by name; see :func:`mixed_kernel`.
            structure: See :func:`mixed_kernel`.
            batch_shape: Batch shape of the parameters of default kernels and of outputscales.

        Returns:
            A kernel on the rows that models of this search see.

        Example:
            >>> from gp_distributions import DistributionGP, MMDKernel, MixedSearch, PointClouds
            >>> from gp_distributions import PoolSearch
            >>> clouds = PointClouds([[[0.0], [0.2]], [[1.0], [1.2]], [[2.0], [2.2]]])
            >>> search = MixedSearch(shape=PoolSearch(clouds), angle=(0.0, 10.0))
            >>> def make_model(X, Y):  # for ShapeOptimizer(search, model=make_model)
            ...     kernel = search.kernel({"shape": MMDKernel(1)})
            ...     return DistributionGP(X, Y, kernel, input_transform=search.input_transform)
        """
        kernel = mixed_kernel(self.encoding, kernels, structure=structure, batch_shape=batch_shape)
        return covariate_lengthscale_priors(kernel)

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and the descriptions of the parts."""
        return {"kind": "mixed", "parts": {n: p.describe() for n, p in self.parts.items()}}

    def initial(self, count: int, seed: int) -> list[dict[str, Any]]:
        """Returns the first ``count`` candidates of a random sequence without repetition.

        Intervals and designs follow one scrambled Sobol sequence. Pools, categories and free shapes
        follow sequences of their own, which start anew at their ends.
        """
        return initial_candidates(self.parts, count, seed)

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the inputs of all parts as one tensor."""
        return self._columns.inputs(candidates)

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[dict[str, Any]]:
        """Finds candidates one after the other, each with the previous ones as pending points."""

        def find(found: list[dict[str, Any]]) -> dict[str, Any]:
            own = derived_seed(seed, len(found))
            with seeded(own, self._columns.like.device):
                return self._maximum(acquisition, [*taken, *found], best, own)

        return one_by_one(acquisition, q, find, self.inputs)

    def show(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the dictionary of the candidates of the parts as users see them."""
        return {name: part.show(candidate[name]) for name, part in self.parts.items()}

    def plain(self, candidate: Any) -> dict[str, Any]:
        """Returns the dictionary of the candidates of the parts as plain data."""
        if not isinstance(candidate, Mapping) or candidate.keys() != self.parts.keys():
            got = list(candidate) if isinstance(candidate, Mapping) else candidate
            raise ValueError(
                f"Expected a dictionary with the keys {list(self.parts)}, got {got!r:.200}."
            )
        found: dict[str, Any] = {}
        for name, part in self.parts.items():
            try:
                found[name] = part.plain(candidate[name])
            except ValueError as error:
                raise ValueError(f"Part {name!r}: {error}") from error
        return found

    def _maximum(
        self, acquisition: AcquisitionFunction, taken: Plain, best: Plain, seed: int
    ) -> dict[str, Any]:
        """Finds one candidate that is not taken."""
        alternation = self._alternation(acquisition, taken)
        leading = self._states(best[: -(-self.num_restarts // 2)])
        random = self._states(self.initial(self.raw_samples, seed))
        starts = alternation.starts(leading, random, self.num_restarts)
        states, reached = alternation.maximise(starts)
        # All maxima are taken, as they may be if few candidates are left.
        if not bool((reached > -torch.inf).any()):
            states = self._states(self.initial(len(taken) + self.raw_samples, seed))
            reached = alternation.values(states)
        top = int(reached.argmax())
        if not reached[top] > -torch.inf:
            raise ValueError(
                "Expected a candidate that is left and has a value of the acquisition function, got "
                f"{len(taken)} candidates that are taken and the value {float(reached[top])}."
            )
        return self._candidate(states, top)

    def _alternation(self, acquisition: AcquisitionFunction, taken: Plain) -> Alternation:
        columns, moves = self._columns, self._continuous
        blocks = self.encoding.blocks
        finite = [
            Choices(
                columns.places[name],
                part.inputs(part.choices()).to(columns.like),
                part.look_up(acquisition, self.encoding.columns[name]),
            )
            for name, part in self._finite.items()
        ]
        limits = [columns.limits(name, part) for name, part in moves.items()]
        return Alternation(
            self._penalized(acquisition),
            finite,
            [columns.places[n].start + c for n, part in moves.items() for c in part.moving],
            torch.cat(limits, dim=-1) if limits else columns.like.new_zeros(2, 0),
            constant=all(isinstance(blocks[name], CovariateEncoding) for name in moves),
            taken=self._states(taken),
            maxiter=self.maxiter,
        )

    def _penalized(self, acquisition: AcquisitionFunction) -> AcquisitionFunction:
        """Subtracts the costs of all parts that have one."""
        for name, part in self._continuous.items():
            cost = part.cost
            if cost is not None:
                acquisition = PenalizedAcquisitionFunction(
                    acquisition, partial(_cost_of, cost, self._columns.places[name]), 1.0
                )
        return acquisition

    @property
    def _finite(self) -> dict[str, FinitePart]:
        return {n: part for n, part in self.parts.items() if isinstance(part, FinitePart)}

    @property
    def _continuous(self) -> dict[str, ContinuousPart]:
        return {n: part for n, part in self.parts.items() if isinstance(part, ContinuousPart)}

    def _states(self, candidates: Plain) -> States:
        chosen = [
            [part.choices().index(candidate[name]) for name, part in self._finite.items()]
            for candidate in candidates
        ]
        rows = self.inputs(candidates)
        choices = torch.tensor(chosen, dtype=torch.long, device=rows.device)
        return States(rows, choices.reshape(len(rows), len(self._finite)))

    def _candidate(self, states: States, index: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, part in self._continuous.items():
            (found[name],) = self._columns.read(name, part, states.rows[index : index + 1])
        choices = states.choices[index].tolist()
        for (name, finite), choice in zip(self._finite.items(), choices, strict=True):
            found[name] = finite.choices()[choice]
        return {name: found[name] for name in self.parts}


def _cost_of(cost: Penalty, columns: slice, X: Tensor) -> Tensor:
    return cost(X[..., columns])
