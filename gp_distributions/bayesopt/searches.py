"""What can be searched: pools, bounded designs, the atoms of clouds; and bags that are given."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.transforms.input import InputTransform
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.bayesopt.acquisitions import ThompsonSampling
from gp_distributions.bayesopt.decoder import Decoder, ShapeDecoder, decodable
from gp_distributions.bayesopt.free_shapes import (
    Penalty,
    check_bounds,
    coordinates,
    optimize_free_shapes,
    refuse_normals,
)
from gp_distributions.bayesopt.parts import Box, ContinuousPart, FinitePart, Plain, Search, shuffled
from gp_distributions.bayesopt.pool import Asked, Pool, optimize_over_pool
from gp_distributions.bayesopt.priors import covariate_lengthscale_priors
from gp_distributions.bayesopt.proposing import climb, one_by_one
from gp_distributions.bayesopt.trust_region import region, side_after
from gp_distributions.kernels.default import default_distance
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.mixed import mixed_kernel
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import Data, Wording, check_type, integer, validated
from gp_distributions.measures.encoding import CovariateEncoding, Scaling
from gp_distributions.measures.inputs import Inputs, distributions_of
from gp_distributions.rows.layout import Block, Columns

# Random designs whose shapes are known to default models.
_KNOWN = 200
# Designs at which sample paths are evaluated, half of them around the best one.
_FOR_PATHS = 1024
# Options of optimize_acqf. Perturbations with the default sigma, a thousandth of the range between the
# bounds, are too small to leave the nearest maximum.
_AROUND_BEST = {"sample_around_best": True, "sample_around_best_sigma": 0.1}


class PoolSearch(FinitePart, Search):
    """Search over a fixed set of candidates; a candidate is an index.

    Default models of mixed inputs have a :func:`mixed_kernel`, with distances in the spread of the pool.

    Args:
        pool: The candidates: a :class:`Pool`; distributions; :class:`MixedInputs`, such as parts that
            have a speed each; or a tensor of rows.

    Example:
        >>> from gp_distributions import PointClouds, PoolSearch, ShapeOptimizer
        >>> search = PoolSearch(PointClouds([[[0.0]], [[1.0]], [[2.0]]]))
        >>> sorted(ShapeOptimizer(search, initial=3).ask(3))
        [0, 1, 2]
    """

    def __init__(self, pool: Pool | Inputs | Tensor) -> None:
        self.pool = pool if isinstance(pool, Pool) else Pool(pool)
        self.encoding = self.pool.encoding
        self.dim = self.pool.dim
        self.clouds = self.pool.clouds

    def block(self, name: str) -> Block | None:
        """Returns the kind and dimension of the clouds, or ``None`` for rows and mixed inputs."""
        return self.pool.block

    def default_kernel(self, batch_shape: torch.Size) -> Kernel:
        """Returns the kernel of the default model, for mixed inputs one of a kernel for each block."""
        if self.encoding is None:
            return super().default_kernel(batch_shape)
        kernels: dict[str, Kernel] = {}
        for name, block in distributions_of(self.pool.inputs).items():
            distance = default_distance(block)
            distance.adapt(block.pack())  # so that the pool can keep its distances
            kernels[name] = DistributionKernel(distance, batch_shape=batch_shape)
        kernel = mixed_kernel(self.encoding, kernels, batch_shape=batch_shape)
        return covariate_lengthscale_priors(kernel)

    def choices(self) -> range:
        """Returns all indices of the pool."""
        return range(len(self.pool))

    def asked(self, module: torch.nn.Module, columns: Columns) -> Asked:
        """Returns what looks the distances of the pool up."""
        return self.pool.asked(module, columns)

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and a digest of all rows."""
        return {"kind": "pool", "rows": _digest(self.pool.rows)}

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the rows of the clouds with the given indices."""
        return self.pool.rows[list(candidates)]

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[int]:
        """Selects, with :func:`optimize_over_pool`, candidates that are not taken."""
        indices, _ = optimize_over_pool(acquisition, self.pool, q, exclude=taken)
        return indices.tolist()

    def plain(self, candidate: Any) -> int:
        """Returns the index as an ``int``."""
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if (index := int(candidate)) == candidate and index in self.choices():
                return index
        raise ValueError(
            f"Expected an index from 0 to {len(self.pool) - 1}, got {candidate!r:.80}."
        )


class Context(FinitePart):
    """A bag that is given as a part of a :class:`MixedSearch`; ``ask(fixed=)`` fixes it.

    Any bag of this dimension can be fixed and told, as a cloud or an array of atoms; a checkpoint keeps
    its points and weights.

    Args:
        clouds: Examples of bags, such as those of earlier batches. Default kernels measure coordinates
            in their spread.

    Raises:
        TypeError: If ``clouds`` are not :class:`PointClouds`.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import MixedSearch, PointClouds, ShapeOptimizer
        >>> from gp_distributions.bayesopt import Context
        >>> feeds = PointClouds.from_list([[1.0, 2.0], [2.0, 3.0, 5.0]])
        >>> search = MixedSearch(feed=Context(feeds), temperature=(60.0, 90.0), rate=(1.0, 2.0))
        >>> optimizer = ShapeOptimizer(search)
        >>> fixed = {"feed": np.array([[1.5], [4.0]]), "temperature": 80.0}  # this batch, and today
        >>> (candidate,) = optimizer.ask(fixed=fixed)
        >>> candidate["feed"].points.flatten().tolist(), candidate["temperature"]
        ([1.5, 4.0], 80.0)
    """

    dim: int
    clouds: PointClouds

    def __init__(self, clouds: PointClouds) -> None:
        check_type(clouds, PointClouds)
        self.dim = clouds.dim
        self.clouds = clouds
        # All bags that were seen. An input of a model is the position of its bag.
        self._bags: list[dict[str, Any]] = []
        self.input_transform = Decoder(self._clouds_at)
        self.inputs([self.plain(clouds[i]) for i in range(len(clouds))])

    def describe(self) -> dict[str, Any]:
        """Return the kind of part and the dimension of bags."""
        return {"kind": "context", "dim": self.dim}

    def choices(self) -> list[dict[str, Any]]:
        """Returns the bags that were seen."""
        return self._bags

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the positions of bags among those that were seen, which they join."""
        new = [bag for bag in candidates if bag not in self._bags]
        if new:
            self._bags += new
            self._pool = Pool(PointClouds.from_list([self.show(bag) for bag in self._bags]))
        places = [self._bags.index(bag) for bag in candidates]
        return self._pool.rows.new_tensor(places).unsqueeze(-1)

    def asked(self, module: torch.nn.Module, columns: Columns) -> Asked:
        """Returns what looks the distances of bags up."""
        return self._pool.asked(module, columns)

    def show(self, candidate: Mapping[str, Any]) -> PointClouds:
        """Returns the cloud."""
        like = self.clouds
        points, weights = (like.weights.new_tensor(candidate[n]) for n in ("points", "weights"))
        return like._alike(*validated(points, weights, Wording()), labels=None)

    def plain(self, candidate: Any) -> dict[str, Any]:
        """Returns the points and weights of a bag, without padding."""
        read = isinstance(candidate, Mapping)
        bag = self.show(candidate) if read else PointClouds.from_list([candidate])[0]
        if bag.dim != self.dim:
            raise ValueError(f"Expected a bag of dimension {self.dim}, got {candidate!r:.80}.")
        present = bag.weights > 0
        return {"points": bag.points[present].tolist(), "weights": bag.weights[present].tolist()}

    def _clouds_at(self, places: Tensor) -> PointClouds:
        clouds = self._pool.clouds
        assert isinstance(clouds, PointClouds)
        found = clouds[places[:, 0].long()]
        # Decoders have gradients, which are zero here.
        return PointClouds._unchecked(found.points, found.weights + 0 * places)


class DesignSearch(Box, Search):
    """Search over bounded design vectors; a candidate is a tensor of ``k`` numbers.

    The first candidates are a scrambled Sobol sequence. Later ones are found one after the other by
    ``botorch.optim.optimize_acqf``.

    Args:
        decoder: The input transform that decodes designs to clouds, for example a :class:`Decoder`,
            alone or in a ``ChainedInputTransform``; ``None`` for a model on the designs themselves.
        bounds: A ``2 x k`` tensor of lower and upper bounds.
        dim: Dimension of the atoms, required by the default model unless ``decoder`` is a
            :class:`Decoder`.
        num_restarts: Number of starts of each optimisation.
        raw_samples: Number of Sobol points from which the starts are chosen, together with the same
            number of perturbations of the best designs so far. At least ``num_restarts``.
        trust_region: Whether to propose designs in a box around the best one, which grows while
            proposals improve and shrinks while they do not: for more than about 10 parameters, or 100
            evaluations of one objective. The box follows from the evaluations alone.

    Raises:
        TypeError: If ``decoder`` is not an input transform.
        ValueError: If ``bounds`` or a number is not valid.

    Example:
        >>> import torch
        >>> from gp_distributions import Decoder, DesignSearch, ShapeOptimizer
        >>> decoder = Decoder(lambda designs: designs.unsqueeze(-2))  # a cloud of one atom
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
        >>> (design,) = ShapeOptimizer(DesignSearch(decoder, bounds)).ask()
        >>> bool(((bounds[0] <= design) & (design <= bounds[1])).all())
        True
    """

    def __init__(
        self,
        decoder: InputTransform | None,
        bounds: Data,
        *,
        dim: int | None = None,
        num_restarts: int = 8,
        raw_samples: int = 256,
        trust_region: bool = False,
    ) -> None:
        if not isinstance(decoder, InputTransform | None):
            raise TypeError(
                f"Expected decoder as an input transform or None, got {decoder!r:.80}. Wrap a "
                "function that decodes designs: Decoder(function)."
            )
        self.bounds = check_bounds(bounds)
        self.input_transform = decoder
        self.dim = dim
        self.num_restarts = integer(num_restarts, "num_restarts")
        self.raw_samples = integer(raw_samples, "raw_samples", least=self.num_restarts)
        self.trust_region = trust_region

    @cached_property
    def clouds(self) -> PointClouds | None:  # type: ignore[override]
        """The shapes of 200 random designs; ``None`` if it is not known how to read them.

        Raises:
            ValueError: If they have another dimension than ``dim``.
        """
        decoder, dim = self.input_transform, self.dim
        read: Callable[[Tensor], PointClouds]
        if isinstance(decoder, Decoder):
            read = decoder.clouds
        elif decoder is not None and dim is not None:
            read = lambda designs: PointClouds.unpack(decoder.transform(designs), dim)  # noqa: E731
        else:
            return None
        designs = self.inputs(self.initial(_KNOWN, 0))
        valid = decodable(read, designs)
        with torch.no_grad():
            clouds = read(valid if len(valid) else designs[:1])
        if dim not in (None, clouds.dim):
            raise ValueError(
                f"The search has dim={dim}, but decode returns atoms of dimension {clouds.dim}."
            )
        return clouds

    def block(self, name: str) -> Block | CovariateEncoding | None:
        """Returns the block of clouds that designs decode to, or the encoding of their numbers."""
        if self.input_transform is not None:
            if self.dim is not None or self.clouds is None:
                return super().block(name)
            return Block("clouds", self.clouds.dim)
        bounds = enumerate(self.bounds.T.tolist())
        return CovariateEncoding({f"{i}": Scaling(low, high - low) for i, (low, high) in bounds})

    def describe(self) -> dict[str, Any]:
        """Return the kind of search and its bounds."""
        return {"kind": "designs", "bounds": self.bounds.tolist()}

    def around(self, designs: Plain, values: Sequence[float], first: int, q: int) -> DesignSearch:
        """Returns the search within the trust region, or this one without a feasible design."""
        if not self.trust_region or not values or max(values) == -math.inf:
            return self
        best = designs[max(range(len(values)), key=values.__getitem__)]
        side = side_after(values, first, q, self.bounds.shape[-1])
        found = copy.copy(self)
        found.bounds = region(self.bounds, self.bounds.new_tensor(best), side)
        return found

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[list[float]]:
        """Finds designs with ``optimize_acqf``, and takes the best of those that do not fold.

        Sample paths are evaluated at the same designs, and each is maximised from its best one.
        """
        if isinstance(acquisition, ThompsonSampling):
            return self._maximise_paths(acquisition, q, best, seed)
        options: dict[str, Any] = {
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
            # L-BFGS also fails where it can improve values only by rounding errors, and a retry would
            # fail again.
            "retry_on_optimization_warning": False,
            "options": {"seed": seed, "maxiter": 100, **_AROUND_BEST},
        }
        decoder = self.input_transform
        if not isinstance(decoder, ShapeDecoder):
            options["sequential"] = q > 1
            return optimize_acqf(acquisition, self.bounds, q, **options)[0].tolist()

        def find(_: list[list[float]]) -> list[float]:
            found, values = optimize_acqf(
                acquisition, self.bounds, 1, return_best_only=False, **options
            )
            if decoder.folds(found.squeeze(-2)).all():
                found = draw_sobol_samples(self.bounds, self.raw_samples, 1, seed=seed)
                with torch.no_grad():
                    values = acquisition(found)
            # Where all fold, the best is as good as any.
            values = values.masked_fill(decoder.folds(found.squeeze(-2)), -torch.inf)
            chosen: list[float] = found[values.argmax(), 0].tolist()
            return chosen

        return one_by_one(acquisition, q, find, self.inputs)

    def _maximise_paths(
        self, acquisition: ThompsonSampling, q: int, best: Plain, seed: int
    ) -> list[list[float]]:
        """Returns the best of many designs on each path, moved uphill."""
        anywhere = draw_sobol_samples(self.bounds, _FOR_PATHS // 2, 1, seed=seed)
        step = _AROUND_BEST["sample_around_best_sigma"] * (self.bounds[1] - self.bounds[0])
        near = (self.inputs(best[:1]) + step * torch.randn_like(anywhere)).clamp(*self.bounds)
        X = torch.cat([anywhere, near])
        with torch.no_grad():
            values = acquisition.values(X)[:, :q]
        values = values.masked_fill(self._folds(X.squeeze(-2)).unsqueeze(-1), -torch.inf)
        starts = X[values.argmax(0)].squeeze(-2)
        # The last column is the number of the path.
        states = torch.cat([starts, torch.arange(q).to(starts).unsqueeze(-1)], dim=-1)

        def value(states: Tensor) -> Tensor:
            paths = acquisition.values(states[..., :-1])
            return paths.gather(-1, states[:, 0, -1:].long()).squeeze(-1)

        found = climb(value, states, self.moving, self.limits, 100)[0][:, :-1]
        return torch.where(self._folds(found).unsqueeze(-1), starts, found).tolist()

    def _folds(self, designs: Tensor) -> Tensor:
        decoder = self.input_transform
        if isinstance(decoder, ShapeDecoder):
            return decoder.folds(designs)
        return torch.zeros(len(designs), dtype=torch.bool, device=designs.device)

    def show(self, candidate: list[float]) -> Tensor:
        """Returns the design as a tensor."""
        return self.bounds.new_tensor(candidate)


class FreeSearch(ContinuousPart, Search):
    """Search over the atoms of clouds; a candidate is a cloud.

    The first candidates are the clouds in ``starts``, in random order. Later ones are found by
    :func:`optimize_free_shapes`, from the best clouds so far and random clouds of ``starts``.

    Args:
        starts: Real clouds. Identical clouds count as one candidate.
        bounds: A ``2 x d`` tensor with the smallest and the largest value of each coordinate.
        penalty: A function of rows that keeps clouds close to the data, for example a
            :class:`DataPenalty`.
        penalty_weight: Factor of the penalty, in the units of the acquisition function.
        num_restarts: Number of clouds from which each optimisation starts. Half of them are the best
            clouds so far.
        maxiter: Maximum number of iterations from each start.

    Raises:
        ValueError: If the starts have normals, or ``bounds`` or a number is not valid.

    Example:
        >>> import torch
        >>> from gp_distributions import FreeSearch, PointClouds, ShapeOptimizer
        >>> generator = torch.Generator().manual_seed(0)
        >>> clouds = PointClouds(torch.rand(6, 3, 2, generator=generator, dtype=torch.float64))
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> (cloud,) = ShapeOptimizer(FreeSearch(clouds, bounds)).ask()
        >>> cloud.points.shape
        torch.Size([3, 2])
    """

    dim: int

    def __init__(
        self,
        starts: PointClouds,
        bounds: Data,
        *,
        penalty: Penalty | None = None,
        penalty_weight: float = 1.0,
        num_restarts: int = 8,
        maxiter: int = 100,
    ) -> None:
        check_type(starts, PointClouds)
        refuse_normals(starts)
        self.dim = starts.dim
        self.bounds = check_bounds(bounds, starts.dim)
        rows = starts.pack().detach()
        distinct = {row.tobytes(): index for index, row in enumerate(rows.cpu().numpy())}
        self.clouds = starts[list(distinct.values())]
        self.starts = rows[list(distinct.values())]
        self.penalty = penalty
        self.penalty_weight = penalty_weight
        self.num_restarts = integer(num_restarts, "num_restarts")
        self.maxiter = integer(maxiter, "maxiter")

    @property
    def moving(self) -> list[int]:
        """The columns of coordinates; weights stay fixed."""
        return coordinates(self.starts, self.bounds)[0]

    @property
    def limits(self) -> Tensor:
        """The bounds of each coordinate of each atom."""
        return coordinates(self.starts, self.bounds)[1]

    @property
    def cost(self) -> Penalty | None:
        """The weighted penalty, if there is one."""
        penalty = self.penalty
        return None if penalty is None else lambda rows: self.penalty_weight * penalty(rows)

    def describe(self) -> dict[str, Any]:
        """Return the kind of search, a digest of the starts, the bounds and the penalty weight."""
        return {
            "kind": "free shapes",
            "starts": _digest(self.starts),
            "bounds": self.bounds.tolist(),
            "penalty_weight": None if self.penalty is None else self.penalty_weight,
        }

    def initial(self, count: int, seed: int) -> list[list[float]]:
        """Returns the rows of the first ``count`` starts in a random order."""
        return self.starts[shuffled(len(self.starts), seed)[:count]].tolist()

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the rows of the clouds as one tensor."""
        return self.starts.new_tensor(candidates)

    def optimize(
        self, acquisition: AcquisitionFunction, q: int, taken: Plain, best: Plain, seed: int
    ) -> list[list[float]]:
        """Finds clouds with :func:`optimize_free_shapes`."""
        leading = best[: -(-self.num_restarts // 2)]
        others = self.initial(self.num_restarts - len(leading), seed)
        clouds, _ = optimize_free_shapes(
            acquisition,
            PointClouds.unpack(self.inputs([*leading, *others]), self.dim),
            self.bounds,
            q,
            penalty=self.penalty,
            penalty_weight=self.penalty_weight,
            maxiter=self.maxiter,
        )
        return clouds.pack().tolist()

    def show(self, candidate: list[float]) -> PointClouds:
        """Converts a row to a cloud."""
        return PointClouds.unpack(self.starts.new_tensor(candidate), self.dim)

    def plain(self, candidate: Any) -> list[float]:
        """Converts a cloud to a row; a row stays as it is."""
        width = self.starts.shape[-1]
        listed = isinstance(candidate, list) and len(candidate) == width
        cloud = self.show(candidate) if listed else candidate
        valid = isinstance(cloud, PointClouds) and cloud.dim == self.dim
        if not valid or (row := cloud.pack()).shape != (width,):
            raise ValueError(
                f"Expected one cloud of dimension {self.dim} and of width {width} when "
                f"packed, as in starts, got {candidate!r:.80}."
            )
        return row.detach().tolist()


def _digest(tensor: Tensor) -> str:
    """Returns a digest of the shape, dtype and numbers of a tensor."""
    array = tensor.numpy(force=True)
    described = repr((array.shape, str(array.dtype)))
    return hashlib.sha256(described.encode() + array.tobytes()).hexdigest()
