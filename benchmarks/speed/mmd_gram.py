"""How much does an exact MMD Gram matrix cost, compared with the exponentials it consists of?

Ours: ``MMD(d).squared(rows)`` with an empty cache and a bandwidth of one, from rows of

- ``uniform``, ``weighted``: T clouds of n atoms;
- ``ragged``: padded clouds of n/5 to 9n/5 atoms, n on average.

Further rows of the table are for other kernels, for gradients with respect to clouds or bandwidth,
and for the approximation by ``num_features`` features, where ``error`` is the mean relative error
of squared distances. The references, timed in the same run:

- ``bare exp``: the exponential of as many numbers as there are ordered pairs of atoms, in blocks of
  2^16 numbers in preallocated memory, by the faster of NumPy and torch;
- ``exact``: ours without features, or without a gradient;
- ``W K W^T``: for images on a grid, the products with the full kernel matrix of the grid, by NumPy.

The budget is for T = 500, n = 50, d = 2. Peak memory is what a side uses beyond its inputs; for the
largest Gram matrix it must stay below 4 GiB.

    python -m benchmarks.speed.mmd_gram [--quick] [--repeats 9]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import (
    Options,
    Row,
    Side,
    Timing,
    Work,
    compare,
    interleave,
    main,
    peak_memory,
)
from benchmarks.judging import limit
from gp_distributions import PointClouds
from gp_distributions.distances.mmd import MMD

BLOCK = 2**16
OTHERS = ("laplace", "matern32", "matern52", "inverse_multiquadric", "energy", "polynomial3")


@dataclass(frozen=True)
class Case:
    """The sizes of one Gram matrix."""

    clouds: int = 500
    atoms: int = 50
    dim: int = 2

    def __str__(self) -> str:
        return f"T={self.clouds} n={self.atoms} d={self.dim}"

    @property
    def pairs(self) -> int:
        """Ordered pairs of atoms."""
        return (self.clouds * self.atoms) ** 2

    def rows(self, *, weighted: bool = False) -> Tensor:
        """Gaussian clouds of several means and spreads."""
        rng = np.random.default_rng(0)
        scale = rng.uniform(0.5, 2.0, (self.clouds, 1, self.dim))
        shift = rng.standard_normal((self.clouds, 1, self.dim))
        points = scale * rng.standard_normal((self.clouds, self.atoms, self.dim)) + shift
        weights = 0.1 + rng.uniform(size=points.shape[:2]) if weighted else None
        return PointClouds(points, weights).pack()

    def ragged_rows(self) -> Tensor:
        """Clouds with one fifth to nine fifths of the mean number of atoms, which stays the same."""
        rng = np.random.default_rng(2)
        fifth = max(1, self.atoms // 5)
        sizes = rng.integers(fifth, 9 * fifth, size=self.clouds, endpoint=True)
        return PointClouds.from_list([rng.standard_normal((n, self.dim)) for n in sizes]).pack()


def ours(distance: MMD, rows: Tensor) -> Side:
    """The Gram matrix from rows."""

    def prepare() -> Work:
        distance.clear_cache()
        return lambda: distance.squared(rows)

    return prepare


def gradient(distance: MMD, rows: Tensor, parameter: Tensor) -> Side:
    """The Gram matrix and the gradient of its sum with respect to the rows or the bandwidth."""

    def prepare() -> Work:
        def work() -> tuple[Tensor, ...]:
            parameter.requires_grad_()
            try:
                return torch.autograd.grad(distance.squared(rows).sum(), parameter)
            finally:
                parameter.requires_grad_(False)

        return work

    return prepare


def exponentials(numbers: int) -> dict[str, Side]:
    """Compute the exponentials of ``numbers`` numbers with each library."""
    exponents = np.random.default_rng(0).uniform(-10, 0, BLOCK)
    result = np.empty_like(exponents)
    exponents_t, result_t = torch.from_numpy(exponents), torch.from_numpy(result)
    blocks = max(1, round(numbers / BLOCK))

    def repeated(work: Work) -> Side:
        def run() -> None:
            for _ in range(blocks):
                work()

        return lambda: run

    return {
        "NumPy: exp": repeated(lambda: np.exp(exponents, out=result)),
        "torch: exp": repeated(lambda: torch.exp(exponents_t, out=result_t)),
    }


def fastest(timings: dict[str, Timing]) -> float:
    """Seconds of the faster library."""
    return min(timings[f"{library}: exp"].median for library in ("NumPy", "torch"))


def budgets(case: Case, repeats: int) -> list[Row]:
    """Time the Gram matrices that have a budget, and the other kernels."""
    distance, rows = MMD(case.dim, bandwidth=1.0), case.rows()
    others = {
        kernel: ours(MMD(case.dim, kernel=kernel, bandwidth=_bandwidth(kernel)), rows)
        for kernel in OTHERS
    }
    timings = interleave(
        {
            "uniform": ours(distance, rows),
            "weighted": ours(distance, case.rows(weighted=True)),
            "ragged": ours(distance, case.ragged_rows()),
            **others,
            **exponentials(case.pairs),
        },
        repeats=repeats,
        label=str(case),
    )
    bare = fastest(timings)

    def against(side: str, name: str) -> Row:
        return compare(f"{name} / bare exp, {case}", timings[side], bare)

    return [
        against("uniform", "gaussian, uniform"),
        against("weighted", "gaussian, weighted"),
        against("ragged", "gaussian, ragged"),
        *(against(kernel, kernel) for kernel in OTHERS),
    ]


def _bandwidth(kernel: str) -> float | None:
    return None if kernel in ("energy", "linear", "polynomial2", "polynomial3") else 1.0


def gradients(case: Case, repeats: int) -> list[Row]:
    """Compare gradients, which compute blocks twice, with the Gram matrix alone."""
    result = []
    for kernel in ("gaussian", "laplace"):
        distance, rows = MMD(case.dim, kernel=kernel, bandwidth=1.0), case.rows()
        assert distance.raw_bandwidth is not None
        timings = interleave(
            {
                "exact": ours(distance, rows),
                "rows": gradient(distance, rows, rows),
                "bandwidth": gradient(distance, rows, distance.raw_bandwidth),
            },
            repeats=repeats,
            label=f"gradients, {case}",
        )
        result += [
            compare(
                f"{kernel}, gradient in {side} / exact, {case}",
                timings[side],
                timings["exact"],
            )
            for side in ("rows", "bandwidth")
        ]
    return result


def approximations(case: Case, counts: tuple[int, ...], repeats: int) -> list[Row]:
    """Compare features with the exact distance: time and error."""
    rows, result = case.rows(), []
    for kernel in ("gaussian", "laplace"):

        def make(kernel: str = kernel, **options: Any) -> MMD:
            return MMD(case.dim, kernel=kernel, bandwidth=1.0, **options)

        approximate = {
            f"{count} {features}": make(num_features=count, features=features)
            for count in counts
            for features in ("orthogonal", "quasi_random", "landmarks")
        }
        expected = make().squared(rows)
        apart = ~torch.eye(case.clouds, dtype=torch.bool)
        errors = {
            name: float(((d.squared(rows) - expected).abs()[apart] / expected[apart]).mean())
            for name, d in approximate.items()
        }
        timings = interleave(
            {"exact": ours(make(), rows), **{n: ours(d, rows) for n, d in approximate.items()}},
            repeats=repeats,
            label=f"features, {kernel}, {case}",
        )
        result += [
            compare(
                f"{kernel}, {name} / exact, {case}",
                timings[name].median,
                timings["exact"].median,
                error=errors[name],
            )
            for name in approximate
        ]
    return result


def images(count: int, side: int, repeats: int) -> list[Row]:
    """Time ``MMD`` on images that share a grid against products with the full kernel matrix."""
    intensities = np.random.default_rng(0).uniform(size=(count, side, side))
    clouds = PointClouds.from_images(intensities)
    rows, weights, grid = clouds.pack(), clouds.weights.numpy(), clouds.points[0].numpy()
    profiles: dict[str, Callable[[Any], Any]] = {
        "gaussian": lambda squared: np.exp(-squared / 2),
        "laplace": lambda squared: np.exp(-np.sqrt(squared)),
    }

    def direct(profile: Callable[[Any], Any]) -> Side:
        def work() -> object:
            squared = ((grid[:, None] - grid) ** 2).sum(-1)
            smoothed = weights @ profile(squared)
            squares = (smoothed * weights).sum(-1)
            return squares[:, None] + squares - 2 * (smoothed @ weights.T)

        return lambda: work

    sides = {}
    for kernel, profile in profiles.items():
        sides[kernel] = ours(MMD(2, kernel=kernel, bandwidth=1.0), rows)
        sides[f"{kernel}, direct"] = direct(profile)
    timings = interleave(sides, repeats=repeats, label=f"{count} images")
    return [
        compare(
            f"{kernel}, {count} images of {side} x {side} / W K W^T",
            timings[kernel],
            timings[f"{kernel}, direct"],
        )
        for kernel in profiles
    ]


def largest(case: Case) -> Row:
    """Time a Gram matrix of clouds with more pairs of atoms than fit into memory."""
    rows, distance, seconds = case.rows(), MMD(case.dim, bandwidth=1.0), 0.0

    def work() -> None:
        nonlocal seconds
        start = time.perf_counter()
        distance.squared(rows)
        seconds = time.perf_counter() - start

    peak = peak_memory(work)
    # A thousandth of the exponentials is enough to extrapolate.
    sample = case.pairs // 1000
    timings = interleave(exponentials(sample), repeats=3, label=f"exp for {case}")
    bare = fastest(timings) * case.pairs / (max(1, round(sample / BLOCK)) * BLOCK)
    return compare(f"gaussian, uniform / bare exp, {case}", seconds, bare, ours_mib=peak)


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
        asked=True,
    ),
)


def run(options: Options) -> list[Row]:
    """Measure the budget, gradients, features, images and the largest Gram matrix."""
    if options.quick:
        small = Case(clouds=30, atoms=10)
        return [
            *budgets(small, options.repeats),
            *gradients(small, options.repeats),
            *approximations(small, (20,), options.repeats),
            *images(20, 8, options.repeats),
            largest(Case(clouds=60, atoms=20)),
        ]
    few = max(3, options.repeats // 3)
    return [
        *budgets(Case(), options.repeats),
        *gradients(Case(clouds=100), few),
        *approximations(Case(), (50, 200, 1000), few),
        *images(1000, 28, few),
        *images(1000, 34, few),
        largest(Case(clouds=2000, atoms=200)),
    ]


if __name__ == "__main__":
    main(run)
