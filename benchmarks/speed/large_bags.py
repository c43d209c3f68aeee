"""What do bags of a million atoms beside small ones cost, and the features of thousands of bags?

- ``one large bag``: 30 bags in the plane, of which one has 10^6 atoms and the others 50 to 500. The
  model is ``DistributionGP(clouds, targets)`` with default options, fitted with ``restarts=0``; it
  predicts the training bags.
- ``features``: ``EmbeddingTransformer().fit_transform`` of 30,000 bags of 40 atoms with 100 slices and
  100 quantiles, in double and in single precision.

Each row is one step in a process of its own, which prepares what comes before it: its seconds, its peak
memory beyond that, and this memory over that of the arrays that it reads (``data_mib``) or returns.

    python -m benchmarks.speed.large_bags [--quick]
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Options, Row, main, peak_memory
from gp_distributions import DistributionGP, EmbeddingTransformer, PointClouds, fit

Bags = list[np.ndarray]


def one_large(size: int) -> Bags:
    """Thirty bags, of which one is large."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(50, 500, size=30)
    sizes[3] = size
    return [rng.normal(size=2) + rng.normal(size=(count, 2)) for count in sizes]


def measured(work: Callable[[], object]) -> tuple[float, float | None]:
    """Return the seconds and the peak memory of a piece of work."""
    seconds: list[float] = []

    def timed() -> object:
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        return result

    peak = peak_memory(timed)
    return seconds[0], peak


def step(name: str, size: int) -> tuple[float, float | None, float]:
    """Measure one step; return its seconds, its peak memory, and the size of its arrays in MiB."""
    if name.startswith("features"):
        many = np.random.default_rng(0).normal(size=(size, 40, 2))
        dtype = np.float32 if name.endswith("single") else np.float64
        transformer = EmbeddingTransformer(dtype=dtype)
        features = size * 10_002 * dtype().nbytes / 2**20
        return *measured(lambda: transformer.fit_transform(many)), features
    bags = one_large(size)
    data = sum(bag.nbytes for bag in bags) / 2**20
    if name == "clouds":
        return *measured(lambda: PointClouds.from_list(bags)), data
    clouds, targets = PointClouds.from_list(bags), np.array([bag.mean() for bag in bags])
    if name == "model and fit":
        return *measured(lambda: fit(DistributionGP(clouds, targets), restarts=0)), data
    model = DistributionGP(clouds, targets)
    return *measured(lambda: model.predict(clouds)), data


def run(options: Options) -> list[Row]:
    """Return one row for each step."""
    large, many = (2_000, 30) if options.quick else (10**6, 30_000)
    steps = {
        f"one large bag: {name}": (name, large) for name in ("clouds", "model and fit", "predict")
    } | {f"features, {name}": (f"features {name}", many) for name in ("double", "single")}
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")  # peaks of one step do not hide those of another
    for label, arguments in steps.items():
        if options.quick:
            seconds, peak, data = step(*arguments)
        else:
            with context.Pool(1) as pool:
                seconds, peak, data = pool.apply(step, arguments)
        times = None if peak is None else peak / data
        rows.append(
            {"name": label, "seconds": seconds, "peak_mib": peak, "data_mib": data, "times": times}
        )
    return rows


if __name__ == "__main__":
    main(run)
