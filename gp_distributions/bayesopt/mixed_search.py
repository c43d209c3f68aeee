"""Search over shapes, recipes, intervals and categories together."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.transforms.input import InputTransform
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.bayesopt.alternation import AlternatingSearch, Alternation
from gp_distributions.bayesopt.parts import Box, ContinuousPart, FinitePart, Part, Plain, read_part
from gp_distributions.bayesopt.pool import Asked, with_candidates
from gp_distributions.bayesopt.priors import covariate_lengthscale_priors
from gp_distributions.bayesopt.proposing import derived_seed
from gp_distributions.bayesopt.records import candidate_key
from gp_distributions.bayesopt.searches import Context
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.mixed import Structure, mixed_kernel
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.encoding import CovariateEncoding, MixedEncoding, Scaling
from gp_distributions.rows.layout import Block, Slots

_NO_BATCH = torch.Size()


class MixedSearch(AlternatingSearch):
    """Search over several parts together, such as a shape, an angle and a material.

    A candidate is a dictionary with the candidate of each part: an index for a pool, a tensor for
    designs, a cloud for free shapes, a dictionary of fractions for a recipe, a number for an interval,
    and a category.

    The acquisition function is maximised jointly, from the best candidates so far and from random ones:
    pools and categories by evaluation of all their elements with the other parts fixed, recipes by
    exchanges of shares of their ingredients, intervals, designs and free shapes by L-BFGS-B with the
    others fixed, in turn until nothing improves.
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
        **parts: The parts by name: a :class:`PoolSearch`, :class:`DesignSearch`, :class:`FreeSearch` or
            :class:`RecipeSearch`; a ``bayesopt.Context``, which is given for each proposal; a tuple of
            two numbers, the bounds of an ``bayesopt.Interval``; or a list, an array or a column of
            ``bayesopt.Categories``.

    Attributes:
        parts: The parts by name.
        fixed: Candidates of the parts that are fixed, as plain data.
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
        self.fixed: dict[str, Any] = {}
        self.num_restarts = integer(self._option(num_restarts, "num_restarts", 8), "num_restarts")
        raw_samples = self._option(raw_samples, "raw_samples", max(256, self.num_restarts))
        self.raw_samples = integer(raw_samples, "raw_samples", least=self.num_restarts)
        self.maxiter = integer(self._option(maxiter, "maxiter", 100), "maxiter")
        blocks = {name: _block(part, name) for name, part in self.parts.items()}
        self.encoding = MixedEncoding(blocks)
        decoders = {n: t for n, part in self.parts.items() if (t := part.input_transform)}
        firsts = {name: part.inputs(part.initial(1, 0)) for name, part in self.parts.items()}
        shapes = [name for name, block in blocks.items() if isinstance(block, Block)]
        kinds = {n: (firsts[n].dtype, firsts[n].device) for n in shapes if n not in decoders}
        if len(set(kinds.values())) > 1:
            raise ValueError(
                f"Expected distributions of one dtype and on one device, got {kinds}. Convert them "
                "with .to(...)."
            )
        # Inputs and states have the dtype and device of the clouds.
        self._like = firsts[[*kinds, *shapes, *firsts][0]]
        slots = [n for n, place in self.encoding.columns.items() if isinstance(place, Slots)]
        self._places: dict[str, _Place] = {}
        columns: dict[str, slice] = {}
        start = width = 0
        for name in sorted(self.parts, key=slots.__contains__):  # clouds and mixtures come last
            place = _Place(self.parts[name], blocks[name], firsts[name], start)
            self._places[name] = place
            columns[name] = slice(width, width := width + firsts[name].shape[-1])
            start = place.states.stop
        self.input_transform = (
            JoinParts(columns, self.encoding, decoders) if decoders or len(slots) > 1 else None
        )

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
        defaults: dict[str, Kernel] = {
            name: DistributionKernel(part.default_distance(), batch_shape=batch_shape)
            for name, part in self.parts.items()
            if part.clouds is not None and name not in (kernels or {})
        }
        given = defaults | dict(kernels or {})
        kernel = mixed_kernel(self.encoding, given, structure=structure, batch_shape=batch_shape)
        return covariate_lengthscale_priors(kernel)

    def at(self, fixed: Mapping[str, Any]) -> MixedSearch:
        """Returns this search with some parts fixed, of which every context has to be one.

        Raises:
            ValueError: If there is no such part, a candidate is not valid, or a context is missing.
        """
        missing = [n for n, p in self.parts.items() if isinstance(p, Context) and n not in fixed]
        if not fixed and not missing:
            return self
        if missing or not fixed.keys() <= self.parts.keys():
            raise ValueError(
                f"Expected fixed to be a dictionary of some of the parts {list(self.parts)}, with every "
                f"context, got {list(fixed)}."
            )
        found = copy.copy(self)
        found.fixed = self._plain(fixed)
        for name, candidate in found.fixed.items():
            self.parts[name].inputs([candidate])  # which a context then knows
        return found

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and the descriptions of the parts."""
        return {"kind": "mixed", "parts": {n: p.describe() for n, p in self.parts.items()}}

    def initial(self, count: int, seed: int) -> list[dict[str, Any]]:
        """Returns the first ``count`` candidates of a random sequence without repetition.

        Intervals and designs follow one scrambled Sobol sequence; sequences of their own would be
        correlated. Other parts follow random sequences of their own, which start anew at their ends.
        After the longest of them, the combinations that are left follow. Fixed parts stay.
        """
        streams: dict[str, Iterator[Any]] = {}
        firsts: list[list[Any]] = []
        for i, (name, part) in enumerate(self.parts.items()):
            if name in self.fixed:
                streams[name] = itertools.repeat(self.fixed[name])
                firsts.append([self.fixed[name]])
            else:
                streams[name] = _cycles(part, count, seed, i)
                firsts.append(part.initial(count, derived_seed(seed, i, 0)))
        free = (item for item in self.parts.items() if item[0] not in self.fixed)
        boxes = {name: part for name, part in free if isinstance(part, Box)}
        if boxes:
            bounds = torch.cat([b.bounds.to("cpu", torch.float64) for b in boxes.values()], dim=-1)
            drawn = draw_sobol_samples(bounds, count, 1, seed=seed).squeeze(1)
            sizes = [box.bounds.shape[-1] for box in boxes.values()]
            for (name, box), columns in zip(boxes.items(), drawn.split(sizes, dim=-1), strict=True):
                streams[name] = iter(box.read_inputs(columns))
        together = zip(*streams.values(), strict=False)
        longest = itertools.islice(together, max(map(len, firsts)))
        found: dict[str, dict[str, Any]] = {}
        for values in itertools.chain(longest, itertools.product(*firsts)):
            candidate = dict(zip(self.parts, values, strict=True))
            found.setdefault(candidate_key(candidate), candidate)
            if len(found) == count:
                break
        return list(found.values())

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the inputs of all parts as one tensor."""
        return self._inputs(self.states(candidates))

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
        return self._plain(candidate)

    def _plain(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in filter(candidate.__contains__, self.parts):
            try:
                found[name] = self.parts[name].plain(candidate[name])
            except ValueError as error:
                raise ValueError(f"Part {name!r}: {error}") from error
        return found

    def within(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the candidates of the parts within all limits, and those that are fixed."""
        return {n: part.within(candidate[n]) for n, part in self.parts.items()} | self.fixed

    def reached(self, alternation: Alternation, state: Tensor) -> dict[str, Any]:
        """Returns the candidates of the parts in a state."""
        return {n: self._places[n].read(state) for n in self.parts} | self.fixed

    def alternation(self, acquisition: AcquisitionFunction, taken: Tensor) -> Alternation:
        """Returns the alternation, which looks distances of pools up."""
        several: list[tuple[int, Asked]] = []
        moving: list[int] = []
        limits = [taken.new_zeros(2, 0)]
        moves: dict[str, ContinuousPart] = {}
        for name, place in self._places.items():
            part, first = place.part, place.states.start
            if isinstance(part, FinitePart):
                asked = part.asked(acquisition, self.encoding.columns[name])
                several += [] if asked is None else [(first, asked)]
            elif isinstance(part, ContinuousPart) and part.moving and name not in self.fixed:
                moves[name] = part
                moving += [first + column for column in part.moving]
                bounds = (part.limits - place.mean[part.moving]) / place.scale[part.moving]
                limits.append(bounds.to(taken))
        # Distances of shapes that do not move can be looked up.
        constant = all(isinstance(self.encoding.blocks[n], CovariateEncoding) for n in moves)
        for _, asked in several:
            asked.constant = constant
        knowing = with_candidates(acquisition, [asked for _, asked in several])

        def value(states: Tensor) -> Tensor:
            for column, asked in several:
                asked.indices = states[:, 0, column].detach().long()
            values = knowing(self._inputs(states))
            for name, part in moves.items():
                if part.cost is not None:
                    values = values - part.cost(states[..., self._places[name].states])
            return values

        joined = torch.cat(limits, dim=-1)
        exchanges = [
            (place.states, place.part.neighbours)
            for name, place in self._places.items()
            if name not in self.fixed
        ]
        return Alternation(value, exchanges, moving, joined, taken, self.maxiter)

    def states(self, candidates: Plain) -> Tensor:
        """Returns candidates as states of an alternation."""
        columns = [place.write([c[n] for c in candidates]) for n, place in self._places.items()]
        return torch.cat([column.to(self._like) for column in columns], dim=-1)

    def _inputs(self, states: Tensor) -> Tensor:
        """Returns the inputs of states, ``... x columns``."""
        columns = [
            states[..., place.states]
            if place.rows is None
            else place.rows.to(states)[states[..., place.states.start].long()]
            for place in self._places.values()
        ]
        return torch.cat(columns, dim=-1)


def _cycles(part: Part, count: int, *seeds: int) -> Iterator[Any]:
    """Yields candidates of a part in random sequences, one after another."""
    for turn in itertools.count():
        yield from part.initial(count, derived_seed(*seeds, turn))


class _Place:
    """Where the states of a mixed search hold a part: its choice, or its inputs, scaled.

    Args:
        part: The part.
        block: What its columns are.
        first: The inputs of a candidate.
        start: The first of the columns of states.
    """

    def __init__(
        self, part: Part, block: Block | CovariateEncoding, first: Tensor, start: int
    ) -> None:
        self.part = part
        self.rows = None
        if isinstance(part, FinitePart) and not isinstance(part, Context):
            self.rows = part.inputs(part.choices())
        width = first.shape[-1] if self.rows is None else 1
        self.states = slice(start, start + width)
        self.mean, self.scale = first.new_zeros(width), first.new_ones(width)
        if self.rows is None and isinstance(block, CovariateEncoding):
            kinds = [kind for kind in block.columns.values() if isinstance(kind, Scaling)]
            self.mean, self.scale = first.new_tensor([(k.mean, k.scale) for k in kinds]).T

    def write(self, candidates: Plain) -> Tensor:
        """Return candidates of the part as states."""
        if self.rows is not None:
            assert isinstance(self.part, FinitePart)
            choices = self.part.choices()
            return self.mean.new_tensor([choices.index(c) for c in candidates]).unsqueeze(-1)
        if not len(candidates):
            return self.mean.new_zeros(0, len(self.mean))
        return (self.part.inputs(candidates) - self.mean) / self.scale

    def read(self, state: Tensor) -> Any:
        """Return the candidate of the part in a state."""
        columns = state[self.states].to(self.mean)
        if isinstance(self.part, FinitePart):
            return self.part.choices()[int(columns)]
        assert isinstance(self.part, ContinuousPart)
        return self.part.read_inputs((columns * self.scale + self.mean).unsqueeze(0))[0]


class JoinParts(InputTransform, torch.nn.Module):
    """Decode the columns of each part, and join the results to rows of mixed inputs.

    Args:
        columns: The columns of each part in the inputs, by its name.
        encoding: The layout of the rows.
        transforms: The input transforms of some parts, by name, such as decoders.

    Example:
        >>> import torch
        >>> from gp_distributions import Decoder, MixedInputs, PointClouds
        >>> from gp_distributions.bayesopt.mixed_search import JoinParts
        >>> encoding = MixedInputs(shape=PointClouds([[[0.0]], [[1.0]]]), angle=[0.0, 2.0]).encoding
        >>> decoder = Decoder(lambda designs: designs.unsqueeze(-2))  # a cloud of one atom
        >>> join = JoinParts({"shape": slice(1, 2), "angle": slice(0, 1)}, encoding, {"shape": decoder})
        >>> join.transform(torch.tensor([[0.5, 7.0]]))  # angle, coordinate, weight
        tensor([[0.5000, 7.0000, 1.0000]])
    """

    is_one_to_many = False
    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(
        self,
        columns: Mapping[str, slice],
        encoding: MixedEncoding,
        transforms: Mapping[str, InputTransform],
    ) -> None:
        super().__init__()
        self.columns = dict(columns)
        self.encoding = encoding
        self.names = list(transforms)
        self.transforms = torch.nn.ModuleList(transforms.values())

    def transform(self, X: Tensor) -> Tensor:
        """Join the parts of a ``batch_shape x q x columns`` tensor.

        Returns:
            A ``batch_shape x q x width`` tensor of rows.
        """
        rows = {name: X[..., columns] for name, columns in self.columns.items()}
        decoders: list[Any] = list(self.transforms)
        for name, decoder in zip(self.names, decoders, strict=True):
            rows[name] = decoder.transform(rows[name])
        return self.encoding.join(rows)


def _block(part: Part, name: str) -> Block | CovariateEncoding:
    block = part.block(name)
    if block is None:
        raise ValueError(
            f"Part {name!r}: expected the kind and dimension of its distributions to be known, got "
            f"{type(part).__name__} without them. Give a PoolSearch PointClouds instead of rows, and a "
            "DesignSearch dim=."
        )
    return block
