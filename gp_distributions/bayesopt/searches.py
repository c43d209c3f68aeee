"""What a search is over: a pool, designs, or the atoms themselves."""

from __future__ import annotations

import hashlib
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.transforms.input import InputTransform
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from gp_distributions.bayesopt.free_shapes import Penalty, check_bounds, optimize_free_shapes
from gp_distributions.bayesopt.pool import Pool, optimize_over_pool
from gp_distributions.bayesopt.records import read_numbers
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import integer
from gp_distributions.measures.kinds import Distributions

# BoTorch's option, with perturbations of a tenth of the bounds: those of its default, a thousandth, do
# not leave the nearest maximum.
_AROUND_BEST = {"sample_around_best": True, "sample_around_best_sigma": 0.1}


class Search(ABC):
    """What candidates of a search are, where they start, and how an acquisition function finds more.

    A candidate has two forms: the one that is shown, and plain data that JSON keeps exactly.

    Attributes:
        dim: The dimension of the atoms, or ``None`` where it is not known.
        input_transform: That of the model, or ``None``.
    """

    dim: int | None = None
    input_transform: InputTransform | None = None

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What tells this search from others, as plain data."""

    @abstractmethod
    def initial(self, count: int, seed: int) -> list[Any]:
        """The first candidates of a random sequence without repetition, as plain data.

        Fewer than ``count`` only where there are no more.
        """

    @abstractmethod
    def inputs(self, candidates: Sequence[Any]) -> Tensor:
        """What a model is given, one row for each of the candidates, plain data."""

    @abstractmethod
    def optimize(
        self,
        acquisition: AcquisitionFunction,
        q: int,
        taken: Sequence[Any],
        best: Sequence[Any],
        seed: int,
    ) -> list[Any]:
        """The candidates, as plain data, with the largest values of an acquisition function.

        Args:
            acquisition: The acquisition function.
            q: The number of candidates.
            taken: Candidates that are evaluated, failed or pending.
            best: Candidates that are evaluated, the best first.
            seed: Of random starts.
        """

    @abstractmethod
    def show(self, candidate: Any) -> Any:
        """Plain data as a candidate."""

    @abstractmethod
    def plain(self, candidate: Any) -> Any:
        """A candidate as plain data.

        Raises:
            ValueError: If it is no candidate of this search.
        """

    @abstractmethod
    def read(self, data: Any) -> Any:
        """What a file holds as a candidate, as plain data.

        Raises:
            ValueError: If it is no candidate of this search.
        """


class PoolSearch(Search):
    """A search over a fixed set of clouds; a candidate is its index.

    Args:
        pool: The candidates.
    """

    def __init__(self, pool: Pool | Distributions | Tensor) -> None:
        self.pool = pool if isinstance(pool, Pool) else Pool(pool)
        self.dim = self.pool.dim

    def describe(self) -> dict[str, Any]:
        """The kind and a digest of all rows."""
        return {"kind": "pool", "rows": digest(self.pool.rows)}

    def initial(self, count: int, seed: int) -> list[int]:
        """Indices in random order."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randperm(len(self.pool), generator=generator)[:count].tolist()

    def inputs(self, candidates: Sequence[int]) -> Tensor:
        """Rows of the pool."""
        return self.pool.rows[list(candidates)]

    def optimize(
        self,
        acquisition: AcquisitionFunction,
        q: int,
        taken: Sequence[int],
        best: Sequence[int],
        seed: int,
    ) -> list[int]:
        """By :func:`optimize_over_pool`, without those taken."""
        indices, _ = optimize_over_pool(acquisition, self.pool, q, exclude=taken)
        return indices.tolist()

    def show(self, candidate: int) -> int:
        """The index itself."""
        return candidate

    def plain(self, candidate: int) -> int:
        """The index itself."""
        index = int(candidate)
        return self.read(index if index == candidate else candidate)

    def read(self, data: Any) -> int:
        """The index, if it is one."""
        if type(data) is not int or not 0 <= data < len(self.pool):
            raise ValueError(
                f"Expected an index from 0 to {len(self.pool) - 1}, got {reprlib.repr(data)}."
            )
        return data


class DesignSearch(Search):
    """A search over bounded design vectors; a candidate is a tensor of ``k`` numbers.

    The first candidates are a scrambled Sobol sequence; then ``botorch.optim.optimize_acqf`` works on
    the bounds, one candidate after the other.

    Args:
        decoder: The input transform that makes clouds of designs, for example a :class:`Decoder`, alone
            or chained behind ``Normalize``; ``None`` for a model that sees designs themselves.
        bounds: A ``2 x k`` tensor of lower and upper bounds.
        dim: The dimension of the atoms, for the default model.
        num_restarts: Starts of each optimisation.
        raw_samples: Designs of a Sobol sequence from which the starts are taken, beside as many
            perturbations of the best so far; at least ``num_restarts``.
    """

    def __init__(
        self,
        decoder: InputTransform | None,
        bounds: Tensor,
        *,
        dim: int | None = None,
        num_restarts: int = 8,
        raw_samples: int = 256,
    ) -> None:
        self.bounds = check_bounds(bounds, bounds.shape[-1] if bounds.dim() else 0)
        self.input_transform = decoder
        self.dim = dim
        self.num_restarts = integer(num_restarts, "num_restarts")
        self.raw_samples = integer(raw_samples, "raw_samples", least=self.num_restarts)

    def describe(self) -> dict[str, Any]:
        """The kind and the bounds."""
        return {"kind": "designs", "bounds": self.bounds.tolist()}

    def initial(self, count: int, seed: int) -> list[list[float]]:
        """Points of a Sobol sequence."""
        return draw_sobol_samples(self.bounds, count, 1, seed=seed).squeeze(1).tolist()

    def inputs(self, candidates: Sequence[list[float]]) -> Tensor:
        """The designs."""
        return self.bounds.new_tensor(candidates)

    def optimize(
        self,
        acquisition: AcquisitionFunction,
        q: int,
        taken: Sequence[list[float]],
        best: Sequence[list[float]],
        seed: int,
    ) -> list[list[float]]:
        """By ``optimize_acqf``."""
        designs, _ = optimize_acqf(
            acquisition,
            self.bounds,
            q=q,
            num_restarts=self.num_restarts,
            raw_samples=self.raw_samples,
            sequential=q > 1,
            # Where improvements are those of rounding L-BFGS gives up, and would again.
            retry_on_optimization_warning=False,
            options={"seed": seed, "maxiter": 100, **_AROUND_BEST},
        )
        return designs.tolist()

    def show(self, candidate: list[float]) -> Tensor:
        """The design as a tensor."""
        return self.bounds.new_tensor(candidate)

    def plain(self, candidate: Tensor | Sequence[float]) -> list[float]:
        """The design as a list."""
        design = torch.as_tensor(candidate, dtype=self.bounds.dtype)
        low, high = self.bounds.cpu()
        if design.shape != low.shape or not bool(
            ((low <= design.cpu()) & (design.cpu() <= high)).all()
        ):
            raise ValueError(f"Expected a design within {self.bounds.tolist()}, got {candidate}.")
        return design.tolist()

    def read(self, data: Any) -> list[float]:
        """The design, if it is one within the bounds."""
        return self.plain(read_numbers(data, self.bounds.shape[-1]))


class FreeSearch(Search):
    """A search over the atoms of clouds themselves; a candidate is a cloud.

    The first candidates are given clouds in random order; then :func:`optimize_free_shapes` starts at
    the best clouds so far and at given ones at random.

    Args:
        starts: Real clouds, of which identical ones are one candidate.
        bounds: A ``2 x d`` tensor, the smallest and the largest value of each coordinate.
        penalty: A function of rows that keeps clouds near the data, for example a :class:`DataPenalty`.
        penalty_weight: Its factor.
        num_restarts: Clouds from which each optimisation starts, half of them the best so far.
        maxiter: Iterations from each.
    """

    dim: int

    def __init__(
        self,
        starts: PointClouds,
        bounds: Tensor,
        *,
        penalty: Penalty | None = None,
        penalty_weight: float = 1.0,
        num_restarts: int = 8,
        maxiter: int = 100,
    ) -> None:
        self.dim = starts.dim
        self.bounds = check_bounds(bounds, starts.dim)
        rows = starts.pack().detach()
        distinct = {row.tobytes(): index for index, row in enumerate(rows.cpu().numpy())}
        self.starts = rows[list(distinct.values())]
        self.penalty = penalty
        self.penalty_weight = penalty_weight
        self.num_restarts = integer(num_restarts, "num_restarts")
        self.maxiter = integer(maxiter, "maxiter")

    def describe(self) -> dict[str, Any]:
        """The kind, a digest of the starts, and the bounds."""
        return {
            "kind": "free shapes",
            "starts": digest(self.starts),
            "bounds": self.bounds.tolist(),
            "penalty_weight": None if self.penalty is None else self.penalty_weight,
        }

    def initial(self, count: int, seed: int) -> list[list[float]]:
        """Starts in random order."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.starts), generator=generator)
        return self.starts[order[:count]].tolist()

    def inputs(self, candidates: Sequence[list[float]]) -> Tensor:
        """Rows."""
        return self.starts.new_tensor(candidates)

    def optimize(
        self,
        acquisition: AcquisitionFunction,
        q: int,
        taken: Sequence[list[float]],
        best: Sequence[list[float]],
        seed: int,
    ) -> list[list[float]]:
        """By :func:`optimize_free_shapes`."""
        leading = self.inputs(best[: -(-self.num_restarts // 2)]).reshape(-1, self.starts.shape[-1])
        others = self.inputs(self.initial(self.num_restarts - len(leading), seed))
        clouds, _ = optimize_free_shapes(
            acquisition,
            PointClouds.unpack(torch.cat([leading, others]), self.dim),
            self.bounds,
            q,
            penalty=self.penalty,
            penalty_weight=self.penalty_weight,
            maxiter=self.maxiter,
        )
        return clouds.pack().tolist()

    def show(self, candidate: list[float]) -> PointClouds:
        """The cloud."""
        return PointClouds.unpack(self.starts.new_tensor(candidate), self.dim)

    def plain(self, candidate: PointClouds) -> list[float]:
        """The row of the cloud."""
        row = candidate.pack()
        if row.shape != self.starts.shape[1:] or candidate.dim != self.dim:
            raise ValueError(f"Expected one cloud like those to start from, got {candidate}.")
        return row.detach().tolist()

    def read(self, data: Any) -> list[float]:
        """The row, if it is one of a cloud like those to start from."""
        row = read_numbers(data, self.starts.shape[-1])
        PointClouds.unpack(torch.tensor(row, dtype=torch.float64), self.dim)
        return row


def digest(tensor: Tensor) -> str:
    """A digest of a tensor's numbers."""
    array = tensor.detach().cpu().contiguous().numpy()
    return hashlib.sha256(
        repr((array.shape, str(array.dtype))).encode() + array.tobytes()
    ).hexdigest()
