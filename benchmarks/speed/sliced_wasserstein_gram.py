"""How does a Gram matrix of SW2^2 compare with its bare primitives, and with POT's loop over pairs?

Ours: ``SlicedWasserstein(d).squared(rows)`` with an empty cache, from rows of

- ``uniform``: clouds of n atoms with equal weights;
- ``weighted``: clouds of n atoms with random weights;
- ``ragged``: padded clouds of n/5 to 9n/5 atoms with equal weights, n on average.

The references, timed in turn in the same run:

- ``fastest primitives``: projection product (T x slices x n) into preallocated memory, sort of the
  projections along n, and one F F^T of the T x (slices * quantiles) features; each by the faster of
  NumPy and torch;
- ``NumPy's`` and ``torch's primitives``: the three chained within one library, including allocation;
- ``POT's loop``: ``ot.sliced_wasserstein_distance`` with as many projections on a sample of pairs,
  scaled up to all T (T - 1) / 2 pairs.

The budgets are for T = 1000, n = 100, d = 2 and 100 slices of 100 quantiles. Peak memory is what a
side uses beyond its inputs.

    python -m benchmarks.speed.sliced_wasserstein_gram [--quick] [--repeats 9]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import ot
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import Options, Row, Side, Timing, Work, compare, interleave, main
from benchmarks.judging import limit
from gp_distributions import PointClouds, SlicedWasserstein

PRIMITIVES = ("projection product", "sort", "F F^T")


@dataclass(frozen=True)
class Case:
    """The sizes of one Gram matrix."""

    clouds: int = 1000
    atoms: int = 100
    dim: int = 2
    slices: int = 100
    quantiles: int = 100

    def __str__(self) -> str:
        return (
            f"T={self.clouds} n={self.atoms} d={self.dim}, "
            f"{self.slices} slices x {self.quantiles} quantiles"
        )

    def points(self) -> NDArray[np.float64]:
        """Gaussian clouds of several means and spreads, ``T x n x d``."""
        rng = np.random.default_rng(0)
        scale = rng.uniform(0.5, 2.0, (self.clouds, 1, self.dim))
        shift = rng.standard_normal((self.clouds, 1, self.dim))
        return scale * rng.standard_normal((self.clouds, self.atoms, self.dim)) + shift

    def distance(self) -> SlicedWasserstein:
        """Return the distance with these sizes."""
        return SlicedWasserstein(self.dim, num_slices=self.slices, num_quantiles=self.quantiles)


def ours(distance: SlicedWasserstein, clouds: PointClouds) -> Side:
    """The Gram matrix from rows."""
    rows = clouds.pack()

    def prepare() -> Work:
        distance.clear_cache()
        return lambda: distance.squared(rows)

    return prepare


def weighted(points: NDArray[np.float64]) -> PointClouds:
    """The same atoms with random weights."""
    return PointClouds(points, 0.1 + np.random.default_rng(1).uniform(size=points.shape[:2]))


def ragged(case: Case) -> PointClouds:
    """Clouds with one fifth to nine fifths of the mean number of atoms, which stays the same."""
    rng = np.random.default_rng(2)
    fifth = case.atoms // 5
    sizes = rng.integers(fifth, 9 * fifth, size=case.clouds, endpoint=True)
    return PointClouds.from_list([rng.standard_normal((size, case.dim)) for size in sizes])


def primitives(
    case: Case, points: NDArray[np.float64], directions: NDArray[np.float64]
) -> dict[str, Side]:
    """The three primitives with both libraries, separate and chained."""
    transposed = points.transpose(0, 2, 1)
    projections: NDArray[np.float64] = directions @ transposed
    features = np.random.default_rng(3).standard_normal((case.clouds, case.slices * case.quantiles))
    # Preallocated, because allocation can cost more than the product itself.
    ready = np.empty_like(projections)
    transposed_t, directions_t, projections_t, ready_t, features_t = map(
        torch.from_numpy, (transposed, directions, projections, ready, features)
    )

    def numpy_sort() -> Work:
        unsorted = projections.copy()  # sorted in place, as in the chain
        return lambda: unsorted.sort(axis=-1)

    def numpy_chain() -> NDArray[np.float64]:
        projected = directions @ transposed
        projected.sort(axis=-1)
        chained = _features(projected, features)
        return chained @ chained.T

    def torch_chain() -> Tensor:
        chained = _features((directions_t @ transposed_t).sort(dim=-1).values, features_t)
        return chained @ chained.T

    return {
        "NumPy: projection product": lambda: lambda: np.matmul(directions, transposed, out=ready),
        "torch: projection product": lambda: (
            lambda: torch.matmul(directions_t, transposed_t, out=ready_t)
        ),
        "NumPy: sort": numpy_sort,
        "torch: sort": lambda: lambda: projections_t.sort(dim=-1),
        "NumPy: F F^T": lambda: lambda: features @ features.T,
        "torch: F F^T": lambda: lambda: features_t @ features_t.T,
        "NumPy: chain": lambda: numpy_chain,
        "torch: chain": lambda: torch_chain,
    }


def _features(ordered: Any, otherwise: Any) -> Any:
    """The sorted projections as features, or random ones if sizes differ."""
    flat = ordered.reshape(len(ordered), -1)
    return flat if flat.shape == otherwise.shape else otherwise


def pot_loop(case: Case, points: NDArray[np.float64], pairs: int) -> Side:
    """POT on ``pairs`` pairs of distinct clouds."""
    rng = np.random.default_rng(4)
    chosen = [rng.choice(case.clouds, 2, replace=False) for _ in range(pairs)]

    def loop() -> None:
        for i, j in chosen:
            ot.sliced_wasserstein_distance(points[i], points[j], n_projections=case.slices, seed=0)

    return lambda: loop


def fastest(timings: dict[str, Timing]) -> float:
    """Seconds of the three primitives, each with the faster library."""
    return sum(
        min(timings[f"{library}: {name}"].median for library in ("NumPy", "torch"))
        for name in PRIMITIVES
    )


def budgets(case: Case, pairs: int, repeats: int) -> list[Row]:
    """Time the Gram matrices that have a budget, and their primitives."""
    points, distance = case.points(), case.distance()
    timings = interleave(
        {
            "uniform": ours(distance, PointClouds(points)),
            "weighted": ours(distance, weighted(points)),
            "ragged": ours(distance, ragged(case)),
            **primitives(case, points, distance.directions.numpy()),
            "POT": pot_loop(case, points, pairs),
        },
        repeats=repeats,
        label=str(case),
    )
    bare = fastest(timings)
    all_pairs = case.clouds * (case.clouds - 1) / 2
    pot = timings["POT"].median * all_pairs / pairs

    def against(name: str, side: str, reference: float | Timing, **more: Any) -> Row:
        return compare(f"{side} / {name}", timings[side], reference, **more)

    rows = [
        against("fastest primitives", "uniform", bare),
        against("fastest primitives", "weighted", bare),
        against("fastest primitives", "ragged", bare),
        against(f"POT's loop, extrapolated from {pairs} pairs", "uniform", pot, inverse=True),
    ]
    rows += [
        against(
            f"{library}'s primitives",
            "uniform",
            timings[f"{library}: chain"],
        )
        for library in ("NumPy", "torch")
    ]
    rows += [
        compare(
            f"NumPy / torch: {name}",
            timings[f"NumPy: {name}"].median,
            timings[f"torch: {name}"].median,
        )
        for name in PRIMITIVES
    ]
    return rows


def scaling(case: Case, repeats: int) -> Row:
    """Compare uniform clouds of other sizes with the fastest primitives."""
    points, distance = case.points(), case.distance()
    timings = interleave(
        {
            "uniform": ours(distance, PointClouds(points)),
            **primitives(case, points, distance.directions.numpy()),
        },
        repeats=repeats,
        label=str(case),
    )
    return compare(
        f"uniform / fastest primitives, {case}",
        timings["uniform"],
        fastest(timings),
    )


_TASK = "SW2 Gram matrix, T = 1000, n = 100, d = 2, 100 slices x 100 quantiles"
TARGETS = (
    limit(
        f"{_TASK}, uniform, over the bare primitives",
        "<= 1.5",
        "ratio",
        name="uniform / fastest primitives",
        reason="At the limit: most of the bare time is one matrix product, which gains most from two "
        "threads.",
        asked=True,
    ),
    limit(
        f"{_TASK}, uniform: POT's loop over pairs, over ours",
        ">= 1000",
        "ratio",
        name="uniform / POT's loop, extrapolated from 200 pairs",
        asked=True,
    ),
    *(
        limit(
            f"{_TASK}, {kind}, over those primitives",
            "<= 4",
            "ratio",
            name=f"{kind} / fastest primitives",
        )
        for kind in ("weighted", "ragged")
    ),
)


def run(options: Options) -> list[Row]:
    """Measure the budgets, then the growth with each size."""
    if options.quick:
        return budgets(Case(clouds=40, atoms=20, slices=10, quantiles=20), 10, options.repeats)
    rows = budgets(Case(), 200, options.repeats)
    others = [
        *(Case(clouds=clouds) for clouds in (250, 500, 2000)),
        *(Case(atoms=atoms) for atoms in (20, 50, 500)),
        Case(dim=1, slices=1),
        *(Case(dim=dim) for dim in (5, 10)),
        *(Case(slices=slices) for slices in (25, 400)),
    ]
    return rows + [scaling(case, max(3, options.repeats // 3)) for case in others]


if __name__ == "__main__":
    main(run)
