"""What can be searched: how candidates are drawn, converted to inputs of a model, and described."""

from __future__ import annotations

import contextlib
import copy
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.transforms.input import InputTransform
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from gp_distributions.bayesopt.free_shapes import Penalty, check_bounds
from gp_distributions.bayesopt.pool import Asked
from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.distances.principal import PrincipalDistance
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.fitting.members import chosen, give_members, principal_distances
from gp_distributions.kernels.default import default_distance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.measures.covariates import Level
from gp_distributions.measures.encoding import CovariateEncoding, Levels, Scaling
from gp_distributions.measures.gaussians import Distributions
from gp_distributions.models.distribution_gp import DistributionGP
from gp_distributions.rows.layout import Block, Columns

# Several candidates as plain data; Part explains this form.
Plain = Sequence[Any]


class Part(ABC):
    """Base class of all that a :class:`MixedSearch` can search together.

    Parts define candidates, draw the first ones, and convert them to inputs of a model. A candidate has
    two forms: the object that users see, and plain data that JSON stores exactly.

    Attributes:
        dim: Dimension of the atoms, or ``None`` if there are none or it is not known.
        clouds: Distributions in whose spread default kernels measure coordinates. ``None`` for the
            spread of those that a model sees first.
        input_transform: Input transform from the inputs to rows, or ``None``.
    """

    dim: int | None = None
    clouds: Distributions | None = None
    input_transform: InputTransform | None = None

    def block(self, name: str) -> Block | CovariateEncoding | None:
        """Returns the block of rows of :class:`MixedInputs` that holds a candidate.

        Args:
            name: Name of the block.

        Returns:
            The kind and dimension of the distributions, or ``None`` if they are not known; or the
            encoding of numbers and categories. Scales of numbers apply to what :meth:`inputs` returns.
        """
        return None if self.dim is None else Block("clouds", self.dim)

    def default_distance(self) -> Distance:
        """Returns the distance of default kernels of the part.

        Raises:
            ValueError: If the dimension of the atoms is not known.
        """
        if self.clouds is not None:
            return copy.deepcopy(self._default_distance)
        if self.dim is None:
            raise ValueError(
                "Expected a model, because the dimension of the atoms is not known, as for a pool of "
                "rows. Pass model=, or give the search PointClouds or dim=."
            )
        return default_distance(Block("clouds", self.dim))

    @cached_property
    def _default_distance(self) -> ScaledDistance:
        assert self.clouds is not None
        distance = default_distance(self.clouds)
        distance.adapt(self.clouds.pack())  # once, so that a pool can keep its distances
        return distance

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Returns a description that distinguishes this object from others, as plain data."""

    @abstractmethod
    def initial(self, count: int, seed: int) -> list[Any]:
        """Returns the first candidates of a random sequence without repetition, as plain data.

        Returns fewer than ``count`` candidates only if the sequence ends before.
        """

    @abstractmethod
    def inputs(self, candidates: Plain) -> Tensor:
        """Converts candidates, given as plain data, to inputs of the model, one row for each."""

    def within(self, candidate: Any) -> Any:
        """Returns a candidate within all limits near one that was told, as plain data."""
        return candidate

    def neighbours(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what a :class:`MixedSearch` tries in place of states, by default nothing.

        Args:
            states: ``S x columns`` states: the inputs, or the position of a choice among all.

        Returns:
            ``S x K x columns`` other states, and which of them are candidates, ``S x K``.
        """
        return states[:, None][:, :0], states[:, :0] > 0

    def show(self, candidate: Any) -> Any:
        """Converts plain data to a candidate as users see it, by default the same."""
        return candidate

    @abstractmethod
    def plain(self, candidate: Any) -> Any:
        """Converts a candidate as users see it, or as a checkpoint holds it, to plain data.

        Raises:
            ValueError: If ``candidate`` is not a candidate.
        """


class Search(Part):
    """Base class of searches, which also find better candidates.

    Example:
        >>> from gp_distributions import DesignSearch, FreeSearch, MixedSearch, PoolSearch
        >>> from gp_distributions.bayesopt import Search
        >>> all(issubclass(c, Search) for c in (PoolSearch, DesignSearch, FreeSearch, MixedSearch))
        True
    """

    trust_region = False

    def default_kernel(self, batch_shape: torch.Size) -> Kernel:
        """Returns the kernel of the default model.

        Args:
            batch_shape: Batch shape of the parameters of the kernel.

        Raises:
            ValueError: If the dimension of the atoms is not known.
        """
        base = DistributionKernel(self.default_distance(), batch_shape=batch_shape)
        return ScaleKernel(base, batch_shape=batch_shape)

    def give_members(self, model: DistributionGP, *, seed: int) -> None:
        """Gives a fitted default model the members with which it predicts, in place.

        They are the isotropic kernel and the two on principal components of
        :func:`gp_distributions.fit`, with equal weights: a few evaluations do not tell which of them is
        better. The principal components are those of all clouds of the search if they are known, else of
        the evaluated ones, of which there are never more than a model of as many clouds has. A distance
        without features, as that of mixtures, stays alone, and so does a kernel of several blocks.

        Args:
            model: A model with the :meth:`default_kernel`.
            seed: Random seed of the fits.
        """
        kernel = model.covar_module.base_kernel
        if not isinstance(kernel, DistributionKernel) or not kernel.distance.euclidean:
            return
        known = None
        if self.clouds is not None:
            known = copy.deepcopy(self._principal, {id(self._default_distance): kernel.distance})
        give_members(model, [kernel], seed=seed, principal=known)
        model.choice = chosen(model)

    @cached_property
    def _principal(self) -> list[PrincipalDistance]:
        assert self.clouds is not None
        return principal_distances(self._default_distance, EmbeddedRows(self.clouds.pack()))

    def at(self, fixed: Mapping[str, Any]) -> Search:
        """Returns this search with some parts fixed, for one proposal.

        Args:
            fixed: Candidates of parts, as users see them, by name.

        Raises:
            ValueError: If there is no such part.
        """
        if fixed:
            raise ValueError(
                f"Expected fixed parts {list(fixed)} of a MixedSearch, got a {type(self).__name__}."
            )
        return self

    def around(self, candidates: Plain, values: Sequence[float], first: int, q: int) -> Search:
        """Returns this search near the best candidate, if it has a trust region.

        Args:
            candidates: Candidates that have been evaluated, in order.
            values: Their values, ``-inf`` where one failed or is not feasible.
            first: Number of random candidates at the start.
            q: Number of candidates of a proposal.
        """
        return self

    @abstractmethod
    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[Any]:
        """Returns candidates, as plain data, that maximise an acquisition function.

        They are found one after the other, each with the previous ones as pending points.

        Args:
            acquisition: The acquisition function.
            q: Number of candidates.
            taken: Candidates that have been evaluated, have failed, or are pending.
            best: Candidates that have been evaluated successfully, with the best first.
            seed: Random seed for the starts.
        """


class FinitePart(Part):
    """Base class of parts whose candidates can be listed.

    Example:
        >>> from gp_distributions import PointClouds, PoolSearch
        >>> search = PoolSearch(PointClouds([[[0.0]], [[1.0]], [[2.0]]]))
        >>> list(search.choices())
        [0, 1, 2]
    """

    @abstractmethod
    def choices(self) -> Sequence[Any]:
        """Returns all candidates, as plain data."""

    def initial(self, count: int, seed: int) -> list[Any]:
        """Returns the first ``count`` candidates in a random order."""
        choices = self.choices()
        return [choices[i] for i in shuffled(len(choices), seed)[:count]]

    def neighbours(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the positions of all candidates."""
        every = torch.arange(len(self.choices())).to(states).expand(len(states), -1)
        return every.unsqueeze(-1), every >= 0

    def asked(self, module: torch.nn.Module, columns: Columns) -> Asked | None:
        """Returns what looks distances of candidates up, by their position among the choices.

        Args:
            module: An acquisition function.
            columns: Columns of the inputs of its kernels that hold the candidates of this part;
                ``None`` for all columns.

        Returns:
            It, or ``None`` if distances are computed whenever they are needed.
        """
        return None


class ContinuousPart(Part):
    """Base class of parts that move columns of the inputs by gradients.

    The plain data of a candidate are the numbers of its input, unless a subclass defines another
    :meth:`read_inputs`.

    Example:
        >>> import torch
        >>> from gp_distributions import DesignSearch
        >>> search = DesignSearch(None, torch.tensor([[0.0], [2.0]]))
        >>> search.moving, search.limits.tolist()
        ([0], [[0.0], [2.0]])
    """

    @property
    @abstractmethod
    def moving(self) -> list[int]:
        """Numbers of the columns of the inputs that may change."""

    @property
    @abstractmethod
    def limits(self) -> Tensor:
        """Lower and upper bounds of the columns that may change, ``2 x columns``."""

    def read_inputs(self, inputs: Tensor) -> list[Any]:
        """Converts an ``N x width`` tensor of inputs to candidates, given as plain data."""
        return inputs.tolist()

    @property
    def cost(self) -> Penalty | None:
        """What to subtract from the acquisition function, a function of inputs; ``None`` for nothing."""
        return None


class Box(ContinuousPart):
    """Base class of parts whose candidates are all vectors of numbers between bounds.

    Attributes:
        bounds: A ``2 x k`` tensor of lower and upper bounds.
    """

    bounds: Tensor

    @property
    def moving(self) -> list[int]:
        """All columns."""
        return list(range(self.bounds.shape[-1]))

    @property
    def limits(self) -> Tensor:
        """The bounds."""
        return self.bounds

    def initial(self, count: int, seed: int) -> list[Any]:
        """Returns the first ``count`` points of a scrambled Sobol sequence."""
        return self.read_inputs(draw_sobol_samples(self.bounds, count, 1, seed=seed).squeeze(1))

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the vectors as one tensor."""
        return self.bounds.new_tensor(candidates).reshape(len(candidates), -1)

    def read_inputs(self, inputs: Tensor) -> list[Any]:
        """Converts an ``N x k`` tensor to vectors within the bounds, whatever its precision."""
        return inputs.to(self.bounds).clamp(*self.bounds).tolist()

    def plain(self, candidate: Any) -> Any:
        """Returns the vector as a list of numbers."""
        low, high = self.bounds.cpu()
        try:
            vector = torch.as_tensor(candidate, dtype=low.dtype, device=low.device)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            vector = low.new_empty(0)
        if vector.shape != low.shape or not ((low <= vector) & (vector <= high)).all():
            raise ValueError(
                f"Expected numbers within the bounds {self.bounds.tolist()}, got {candidate!r:.80}."
            )
        return vector.tolist()


class Interval(Box):
    """An interval as a part of a :class:`MixedSearch`; a candidate is a number.

    A tuple of two numbers is read as an interval. A model sees the number scaled to [0, 1].

    Args:
        low: The lower bound.
        high: The upper bound.

    Raises:
        ValueError: If the bounds are not finite, or the lower is not below the upper bound.

    Example:
        >>> from gp_distributions import MixedSearch
        >>> from gp_distributions.bayesopt import Interval
        >>> MixedSearch(angle=Interval(0.0, 10.0)).inputs([{"angle": 2.5}]).tolist()
        [[0.25]]
    """

    def __init__(self, low: float, high: float) -> None:
        self.bounds = check_bounds([[float(low)], [float(high)]])

    def block(self, name: str) -> CovariateEncoding:
        """Returns the encoding of a single column."""
        low, high = self.bounds.flatten().tolist()
        return CovariateEncoding({name: Scaling(low, high - low)})

    def describe(self) -> dict[str, Any]:
        """Return the kind of part and its bounds."""
        return {"kind": "interval", "bounds": self.bounds.flatten().tolist()}

    def read_inputs(self, inputs: Tensor) -> list[Any]:
        """Converts a column to numbers within the bounds."""
        return [number for (number,) in super().read_inputs(inputs)]

    def within(self, candidate: float) -> float:
        """Returns the nearest number within the bounds."""
        return float(self.bounds.new_tensor(candidate).clamp(*self.bounds[:, 0]))

    def plain(self, candidate: Any) -> float:
        """Returns the number as a ``float``, also outside the bounds, where it may be fixed or told."""
        with contextlib.suppress(TypeError, ValueError):
            if math.isfinite(number := float(candidate)):
                return number
        raise ValueError(f"Expected a finite number, got {candidate!r:.80}.")


class Categories(FinitePart):
    """Categories as a part of a :class:`MixedSearch`; a candidate is a category.

    A list or an array is read as categories, except for one of two numbers, which could also be meant as
    an interval. A model sees the position of the category.

    Args:
        levels: The categories: text, booleans or numbers, in a list, an array or a column of a frame.

    Raises:
        TypeError: If a category is neither text nor a boolean nor a number, or is missing.
        ValueError: If there are fewer than two categories, or one occurs twice.

    Example:
        >>> from gp_distributions import MixedSearch
        >>> from gp_distributions.bayesopt import Categories
        >>> search = MixedSearch(coats=Categories([1, 2]), material=["oak", "ash"])
        >>> search.inputs([{"coats": 2, "material": "oak"}]).tolist()
        [[1.0, 0.0]]
    """

    def __init__(self, levels: Iterable[Level]) -> None:
        found = tuple(map(_as_python, levels))
        for level in found:
            if not isinstance(level, str | bool | int | float) or level != level:
                raise TypeError(f"Expected categories as text, booleans or numbers, got {level!r}.")
        if len(found) < 2 or len(set(found)) < len(found):
            raise ValueError(
                f"Expected at least two different categories, got {reprlib.repr(list(found))}. Use "
                "numpy.unique for the categories of a column."
            )
        self.levels = found

    def block(self, name: str) -> CovariateEncoding:
        """Returns the encoding of a single column."""
        return CovariateEncoding({name: Levels(self.levels)})

    def describe(self) -> dict[str, Any]:
        """Return the kind of part and the categories."""
        return {"kind": "categories", "levels": list(self.levels)}

    def choices(self) -> tuple[Level, ...]:
        """Returns the categories."""
        return self.levels

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the positions of the categories as a column."""
        positions = [self.levels.index(level) for level in candidates]
        return torch.tensor(positions, dtype=torch.float64).unsqueeze(-1)

    def plain(self, candidate: Any) -> Level:
        """Returns the category as it is in the list of categories."""
        value = _as_python(candidate)
        for level in self.levels:
            # True equals 1.
            if isinstance(level, bool) == isinstance(value, bool) and level == value:
                return level
        raise ValueError(
            f"Expected a category from {list(self.levels)}, got {reprlib.repr(candidate)}."
        )


def read_part(part: Any, name: str) -> Part:
    """Return a part of a mixed search.

    Args:
        part: A part; a tuple of two numbers, the bounds of an interval; or categories, in a list, an
            array or a column of a data frame.
        name: Name of the part.

    Raises:
        TypeError: If it is none of these.
        ValueError: If the bounds or the categories are not valid, or could be meant as either.
    """
    if isinstance(part, FinitePart | ContinuousPart):
        if isinstance(part, Search) and part.trust_region:
            raise ValueError(
                f"Part {name!r}: expected a search without a trust region, which is one of all parts."
            )
        return part
    if not isinstance(part, list | tuple) and not hasattr(part, "__array__"):
        raise TypeError(
            f"Part {name!r}: expected a PoolSearch, DesignSearch, FreeSearch or RecipeSearch, an "
            f"interval (low, high), or a list of categories, got {type(part).__name__}. For a fixed set "
            "of clouds use PoolSearch(clouds)."
        )
    values = [_as_python(value) for value in part]
    try:
        if len(values) != 2 or not all(type(value) in (int, float) for value in values):
            return Categories(values)
        if isinstance(part, tuple):
            return Interval(*values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Part {name!r}: {error}") from None
    raise ValueError(
        f"Part {name!r}: expected an interval as a tuple, or categories, got the {type(part).__name__} "
        f"{values}. Use {tuple(values)} for the interval, or Categories({values}) for two categories."
    )


def _as_python(value: Any) -> Any:
    """Returns numbers and text of NumPy and PyTorch as those of Python."""
    return value.item() if hasattr(value, "item") else value


def shuffled(size: int, seed: int) -> list[int]:
    """Returns the integers from 0 to ``size - 1`` in a random order."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
