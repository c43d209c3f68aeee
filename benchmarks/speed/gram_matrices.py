"""What do Gram matrices cost, compared with the operations that they consist of?

Ours are ``distance.squared(rows)`` with an empty cache, from rows of

- ``uniform``: clouds of n atoms with equal weights;
- ``weighted``: clouds of n atoms with random weights;
- ``ragged``: padded clouds of n/5 to 9n/5 atoms with equal weights, n on average.

**Sliced Wasserstein**: ``SlicedWasserstein(d)`` with 100 slices of 100 quantiles. The references:

- ``fastest primitives``: projection product (T x slices x n) into preallocated memory, sort of the
  projections along n, and one F F^T of the T x (slices * quantiles) features; each by the faster of
  NumPy and torch;
- ``POT's loop``: ``ot.sliced_wasserstein_distance`` with as many projections on a sample of pairs,
  scaled up to all T (T - 1) / 2 pairs.

**MMD**: ``MMD(d)`` with a bandwidth of one, or with the median distance of atoms. With the Gaussian
kernel and up to four coordinates, these are distances between features that are exact up to rounding,
else sums over pairs of atoms. The reference, ``bare exp``, is the exponential of as many numbers as
there are ordered pairs of atoms, in blocks of 2^16 numbers in preallocated memory, by the faster of
NumPy and torch.

**Unknown pose**: ``RigidSlicedWasserstein(d).embed(rows)`` for Gaussian clouds, over
``SlicedWasserstein(d).embed(rows)``. Neither remembers the rows.

The sides of a comparison are timed in turn. Peak memory is what a side uses beyond its inputs.

    python -m benchmarks.speed.gram_matrices [--quick] [--repeats 9]
"""

from __future__ import annotations

from functools import partial

import numpy as np
import ot
import torch
from numpy.typing import NDArray

from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, Side, Timing, Work, compare, interleave, main
from benchmarks.judging import limit
from benchmarks.speed.clouds import Sizes, fixed, gram
from gp_distributions import MMD, PointClouds, RigidSlicedWasserstein, SlicedWasserstein

BLOCK = 2**16
KERNELS = ("laplace", "matern32", "matern52", "inverse_multiquadric", "energy", "polynomial3")
Array = NDArray[np.float64]


_TASK = "SW2 Gram matrix, T = 1000, n = 100, d = 2, 100 slices x 100 quantiles"
TARGETS = (
    limit(
        f"{_TASK}, over the bare primitives",
        "<= 1.5",
        "ratio",
        name="uniform / fastest primitives",
        reason="At the limit: most of the bare time is one matrix product, which gains most from two "
        "threads.",
        asked=True,
    ),
    limit(
        f"{_TASK}: POT's loop over pairs, over ours",
        ">= 1000",
        "ratio",
        name="uniform / POT's loop, extrapolated from 200 pairs",
    ),
    limit(
        "exact MMD Gram matrix, T = 500, n = 50, d = 2, over the bare exp of all ordered pairs",
        "<= 1",
        "ratio",
        name="gaussian, uniform / bare exp, T=500 n=50 d=2",
        asked=True,
    ),
    limit(
        "embedding 1000 clouds of 100 points in the plane in unknown pose, over SW2",
        "<= 3",
        "ratio",
        name="rigid / sliced Wasserstein, embed T=1000 n=100 d=2",
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

    return fixed(loop)


def faster(timings: dict[str, Timing], name: str) -> float:
    """Seconds of an operation with the faster library."""
    return min(timings[f"{library}: {name}"].median for library in ("NumPy", "torch"))


def sliced(sizes: Sizes, slices: int, quantiles: int, pairs: int, repeats: int) -> list[Row]:
    """Time sliced Wasserstein distances, their primitives and POT."""
    points = sizes.points()
    distance = SlicedWasserstein(sizes.dim, num_slices=slices, num_quantiles=quantiles)
    ours = {kind: gram(distance, rows) for kind, rows in sizes.rows().items()}
    others = primitives(points, distance.directions.numpy(), quantiles)
    pot = {"POT": pot_loop(points, slices, pairs)}
    timings = interleave(ours | others | pot, repeats=repeats, label=str(sizes))
    bare = sum(faster(timings, name) for name in ("projection product", "sort", "F F^T"))
    rows = [compare(f"{kind} / fastest primitives", timings[kind], bare) for kind in ours]
    loop = timings["POT"].median * sizes.clouds * (sizes.clouds - 1) / 2 / pairs
    name = f"uniform / POT's loop, extrapolated from {pairs} pairs"
    return [*rows, compare(name, timings["uniform"], loop, inverse=True)]


def exponentials(numbers: int) -> dict[str, Side]:
    """Compute the exponentials of ``numbers`` numbers with each library."""
    exponents = np.random.default_rng(0).uniform(-10, 0, BLOCK)
    result = np.empty_like(exponents)
    exponents_t, result_t = torch.from_numpy(exponents), torch.from_numpy(result)

    def repeated(work: Work) -> Side:
        def run() -> None:
            for _ in range(max(1, round(numbers / BLOCK))):
                work()

        return fixed(run)

    return {
        "NumPy: exp": repeated(lambda: np.exp(exponents, out=result)),
        "torch: exp": repeated(lambda: torch.exp(exponents_t, out=result_t)),
    }


def mmd(sizes: Sizes, repeats: int) -> list[Row]:
    """Time MMD with several kernels, and the exponentials of all pairs of atoms."""
    sides = {
        f"gaussian, {kind} / bare exp, {sizes}": gram(MMD(sizes.dim, bandwidth=1.0), rows)
        for kind, rows in sizes.rows().items()
    }
    for kernel, dim in [*(("gaussian", d) for d in (1, 2, 3, 5)), *((k, 2) for k in KERNELS)]:
        distance, own = MMD(dim, kernel=kernel), Sizes(sizes.clouds, sizes.atoms, dim)
        uniform = own.rows()["uniform"]
        distance.adapt(uniform)
        sides[f"{kernel}, median bandwidth / bare exp, {own}"] = gram(distance, uniform)
    bare = exponentials((sizes.clouds * sizes.atoms) ** 2)
    timings = interleave(sides | bare, repeats=repeats, label=str(sizes))
    return [compare(name, timings[name], faster(timings, "exp")) for name in sides]


def rigid(clouds: int, atoms: int, repeats: int) -> list[Row]:
    """Time representations in unknown pose."""
    rows: list[Row] = []
    for dim in (2, 3):
        packed = PointClouds(Draws(dim).normal(clouds, atoms, dim)).pack()
        sides = {
            kind.__name__: fixed(partial(kind(dim).embed, packed))
            for kind in (RigidSlicedWasserstein, SlicedWasserstein)
        }
        timings = interleave(sides, repeats=repeats, label=f"embed, d={dim}")
        name = f"rigid / sliced Wasserstein, embed T={clouds} n={atoms} d={dim}"
        rows.append(compare(name, *timings.values()))
    return rows


def run(options: Options) -> list[Row]:
    """Return the rows of each distance."""
    sizes = (Sizes(40, 20), 10, 20, 10) if options.quick else (Sizes(), 100, 100, 200)
    usual = Sizes(30, 10) if options.quick else Sizes(500, 50)
    return [
        *sliced(*sizes, options.repeats),
        *mmd(usual, options.repeats),
        *rigid(sizes[0].clouds, sizes[0].atoms, options.repeats),
    ]


if __name__ == "__main__":
    main(run)
