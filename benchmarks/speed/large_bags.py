"""What do bags of a million atoms beside small ones cost?

Of 30 bags in the plane, one has 10^6 atoms and the others 50 to 500. The model is
``DistributionGP(clouds, targets)`` with default options, fitted with ``restarts=0``; it predicts the
training bags.

Each row is one step in a process of its own, which prepares what comes before it: its seconds, its peak
memory beyond that, and this memory over that of the bags (``data_mib``).

    python -m benchmarks.speed.large_bags [--quick]
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Options, Row, main, peak_memory
from gp_distributions import DistributionGP, PointClouds, fit

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
    large = 2_000 if options.quick else 10**6
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")  # peaks of one step do not hide those of another
    for name in ("clouds", "model and fit", "predict"):
        if options.quick:
            seconds, peak, data = step(name, large)
        else:
            with context.Pool(1) as pool:
                seconds, peak, data = pool.apply(step, (name, large))
        row: Row = {"name": f"one large bag: {name}", "seconds": seconds, "peak_mib": peak}
        times = None if peak is None else peak / data
        rows.append(row | {"data_mib": data, "times": times})
    return rows


if __name__ == "__main__":
    main(run)
