"""How much does an exact MMD Gram matrix cost, compared with the exponentials it consists of?

Ours: ``MMD(d).squared(rows)`` with an empty cache and a bandwidth of one, from rows of

- ``uniform``, ``weighted``: T clouds of n atoms;
- ``ragged``: padded clouds of n/5 to 9n/5 atoms, n on average.

With the Gaussian kernel and up to four coordinates, they are distances between features that are exact
up to rounding, else sums over pairs of atoms. Further rows are for other kernels, for the median
distance of atoms as bandwidth, and for ``num_features`` features, where ``error`` is the mean relative
error of squared distances. The references, timed in the same run:

- ``bare exp``: the exponential of as many numbers as there are ordered pairs of atoms, in blocks of
  2^16 numbers in preallocated memory, by the faster of NumPy and torch;
- ``exact``: ours without ``num_features``.

Peak memory is what a side uses beyond its inputs; for the largest Gram matrix it must stay below 4 GiB.

    python -m benchmarks.speed.mmd_gram [--quick] [--repeats 9]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main, peak_memory
from benchmarks.judging import limit
from benchmarks.speed.clouds import Sizes, gram
from gp_distributions import MMD

BLOCK = 2**16
OTHERS = ("laplace", "matern32", "matern52", "inverse_multiquadric", "energy", "polynomial3")
# Approximated by features.
KERNELS = ("gaussian", "laplace")


TARGETS = (
    limit(
        "exact MMD Gram matrix, T = 500, n = 50, d = 2, over the bare exp of all ordered pairs",
        "<= 1",
        "ratio",
        name="gaussian, uniform / bare exp, T=500 n=50 d=2",
        asked=True,
    ),
    limit(
        "exact MMD Gram matrix, T = 2000, n = 200: peak memory",
        "<= 4096 MiB",
        "ours_mib",
        name="gaussian, uniform / bare exp, T=2000 n=200 d=2",
    ),
)


def pairs(sizes: Sizes) -> int:
    """Return the number of ordered pairs of atoms."""
    return (sizes.clouds * sizes.atoms) ** 2


def exponentials(numbers: int) -> dict[str, Side]:
    """Compute the exponentials of ``numbers`` numbers with each library."""
    exponents = np.random.default_rng(0).uniform(-10, 0, BLOCK)
    result = np.empty_like(exponents)
    exponents_t, result_t = torch.from_numpy(exponents), torch.from_numpy(result)

    def repeated(work: Work) -> Side:
        def run() -> None:
            for _ in range(max(1, round(numbers / BLOCK))):
                work()

        return lambda: run

    return {
        "NumPy: exp": repeated(lambda: np.exp(exponents, out=result)),
        "torch: exp": repeated(lambda: torch.exp(exponents_t, out=result_t)),
    }


def budgets(sizes: Sizes, repeats: int) -> list[Row]:
    """Time the Gram matrices that have a budget, and the other kernels."""
    rows = sizes.rows()
    sides = {
        f"gaussian, {kind} / bare exp, {sizes}": gram(MMD(sizes.dim, bandwidth=1.0), some)
        for kind, some in rows.items()
    }
    for kernel, dim in [*(("gaussian", d) for d in (1, 2, 3, 5)), *((k, 2) for k in OTHERS)]:
        distance, own = MMD(dim, kernel=kernel), Sizes(sizes.clouds, sizes.atoms, dim)
        uniform = own.rows()["uniform"]
        distance.adapt(uniform)
        sides[f"{kernel}, median bandwidth / bare exp, {own}"] = gram(distance, uniform)
    bare = exponentials(pairs(sizes))
    timings = interleave(sides | bare, repeats=repeats, label=str(sizes))
    fastest = min(timings[name].median for name in bare)
    return [compare(name, timings[name], fastest) for name in sides]


def approximations(sizes: Sizes, counts: Sequence[int], repeats: int) -> list[Row]:
    """Compare features with the exact distance: time and error."""
    rows, result = sizes.rows()["uniform"], []
    apart = ~torch.eye(sizes.clouds, dtype=torch.bool)
    for kernel in KERNELS:
        make = partial(MMD, sizes.dim, kernel=kernel, bandwidth=1.0)
        approximate = {
            f"{count} {features}": make(num_features=count, features=features)
            for count in counts
            for features in ("orthogonal", "quasi_random", "landmarks")
        }
        expected = make().squared(rows)
        sides = {name: gram(distance, rows) for name, distance in approximate.items()}
        sides["exact"] = gram(make(), rows)
        timings = interleave(sides, repeats=repeats, label=f"features, {kernel}, {sizes}")
        for name, distance in approximate.items():
            error = ((distance.squared(rows) - expected).abs()[apart] / expected[apart]).mean()
            both = (timings[side].median for side in (name, "exact"))
            result.append(compare(f"{kernel}, {name} / exact, {sizes}", *both, error=float(error)))
    return result


def largest(sizes: Sizes) -> Row:
    """Time a Gram matrix of clouds with more pairs of atoms than fit into memory."""
    rows, distance, seconds = sizes.rows()["uniform"], MMD(sizes.dim, bandwidth=1.0), 0.0

    def work() -> None:
        nonlocal seconds
        start = time.perf_counter()
        distance.squared(rows)
        seconds = time.perf_counter() - start

    peak = peak_memory(work)
    # A thousandth of the exponentials is enough to extrapolate.
    blocks = max(1, round(pairs(sizes) / 1000 / BLOCK))
    timings = interleave(exponentials(blocks * BLOCK), repeats=3, label=f"exp for {sizes}")
    fastest = min(timing.median for timing in timings.values())
    bare = fastest * pairs(sizes) / (blocks * BLOCK)
    return compare(f"gaussian, uniform / bare exp, {sizes}", seconds, bare, ours_mib=peak)


def run(options: Options) -> list[Row]:
    """Measure the budget, features and the largest Gram matrix."""
    usual, most, counts = Sizes(500, 50), Sizes(2000, 200), [50, 200, 1000]
    if options.quick:
        usual, most, counts = Sizes(30, 10), Sizes(60, 20), [20]
    approximate = approximations(usual, counts, max(3, options.repeats // 3))
    return [*budgets(usual, options.repeats), *approximate, largest(most)]


if __name__ == "__main__":
    main(run)
