"""How does a Gram matrix of SW2^2 compare with its bare primitives, and with POT's loop over pairs?

Ours: ``SlicedWasserstein(d).squared(rows)`` with an empty cache, from rows of

- ``uniform``: clouds of n atoms with equal weights;
- ``weighted``: clouds of n atoms with random weights;
- ``ragged``: padded clouds of n/5 to 9n/5 atoms with equal weights, n on average.

The references, timed in turn in the same run:

- ``fastest primitives``: projection product (T x slices x n) into preallocated memory, sort of the
  projections along n, and one F F^T of the T x (slices * quantiles) features; each by the faster of
  NumPy and torch;
- ``POT's loop``: ``ot.sliced_wasserstein_distance`` with as many projections on a sample of pairs,
  scaled up to all T (T - 1) / 2 pairs.

The budgets are for T = 1000, n = 100, d = 2 and 100 slices of 100 quantiles. Peak memory is what a
side uses beyond its inputs.

    python -m benchmarks.speed.sliced_wasserstein_gram [--quick] [--repeats 9]
"""

from __future__ import annotations

import numpy as np
import ot
import torch
from numpy.typing import NDArray

from benchmarks.harness import Options, Row, Side, Timing, Work, compare, interleave, main
from benchmarks.judging import limit
from benchmarks.speed.clouds import Sizes, gram
from gp_distributions import SlicedWasserstein

PRIMITIVES = ("projection product", "sort", "F F^T")
Array = NDArray[np.float64]


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


def primitives(points: Array, directions: Array, quantiles: int) -> dict[str, Side]:
    """The three primitives with both libraries."""
    transposed = points.transpose(0, 2, 1)
    projections: Array = directions @ transposed
    shape = (len(points), len(directions) * quantiles)
    features = np.random.default_rng(3).standard_normal(shape)
    # Preallocated, because allocation can cost more than the product itself.
    ready = np.empty_like(projections)
    transposed_t, directions_t, projections_t, ready_t, features_t = map(
        torch.from_numpy, (transposed, directions, projections, ready, features)
    )

    def numpy_sort() -> Work:
        unsorted = projections.copy()  # sorted in place
        return lambda: unsorted.sort(axis=-1)

    return {
        "NumPy: projection product": lambda: lambda: np.matmul(directions, transposed, out=ready),
        "torch: projection product": lambda: (
            lambda: torch.matmul(directions_t, transposed_t, out=ready_t)
        ),
        "NumPy: sort": numpy_sort,
        "torch: sort": lambda: lambda: projections_t.sort(dim=-1),
        "NumPy: F F^T": lambda: lambda: features @ features.T,
        "torch: F F^T": lambda: lambda: features_t @ features_t.T,
    }


def pot_loop(points: Array, slices: int, pairs: int) -> Side:
    """POT on ``pairs`` pairs of distinct clouds."""
    rng = np.random.default_rng(4)
    chosen = [rng.choice(len(points), 2, replace=False) for _ in range(pairs)]

    def loop() -> None:
        for i, j in chosen:
            ot.sliced_wasserstein_distance(points[i], points[j], n_projections=slices, seed=0)

    return lambda: loop


def fastest(timings: dict[str, Timing]) -> float:
    """Seconds of the three primitives, each with the faster library."""
    return sum(
        min(timings[f"{library}: {name}"].median for library in ("NumPy", "torch"))
        for name in PRIMITIVES
    )


def budgets(sizes: Sizes, slices: int, quantiles: int, pairs: int, repeats: int) -> list[Row]:
    """Time the Gram matrices that have a budget, and their primitives."""
    points = sizes.points()
    distance = SlicedWasserstein(sizes.dim, num_slices=slices, num_quantiles=quantiles)
    ours = {kind: gram(distance, rows) for kind, rows in sizes.rows().items()}
    others = primitives(points, distance.directions.numpy(), quantiles)
    pot = {"POT": pot_loop(points, slices, pairs)}
    timings = interleave(ours | others | pot, repeats=repeats, label=str(sizes))
    bare = fastest(timings)
    rows = [compare(f"{kind} / fastest primitives", timings[kind], bare) for kind in ours]
    loop = timings["POT"].median * sizes.clouds * (sizes.clouds - 1) / 2 / pairs
    name = f"uniform / POT's loop, extrapolated from {pairs} pairs"
    return [*rows, compare(name, timings["uniform"], loop, inverse=True)]


def run(options: Options) -> list[Row]:
    """Measure the budgets."""
    sizes = (Sizes(40, 20), 10, 20, 10) if options.quick else (Sizes(), 100, 100, 200)
    return budgets(*sizes, options.repeats)


if __name__ == "__main__":
    main(run)
