"""How much does a search over a pool of 100 000 clouds cost?

The time of ``optimize_over_pool`` of log expected improvement in seconds, for 100 000 clouds of 64 atoms
in the plane, 50 of them evaluated. The first call embeds all clouds; the next call has one more
evaluation. On t-batches, the cost is that of posteriors with gradients (``t_batch_speed``).

    python -m benchmarks.speed.acquisition_speed [--quick]
"""

from __future__ import annotations

import time

from botorch.acquisition import LogExpectedImprovement
from gpytorch.kernels import ScaleKernel

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, main
from gp_distributions.bayesopt import Pool, optimize_over_pool


def run(options: Options) -> list[Row]:
    """Time a search over many candidates, with and without keeping their features."""
    size, training = (500, 10) if options.quick else (100_000, 50)
    draws = Draws(0)
    points = draws.normal(size, 64, 2)
    spreads = 0.2 + draws.uniform(size, 1, 2)
    clouds, targets = gd.PointClouds(points * spreads), spreads.squeeze(1).prod(-1)
    rows: list[Row] = []
    for slices, quantiles in ((16, 16), (100, 100)):
        pool = Pool(clouds)
        row: Row = {"name": f"pool of {size}, {slices} slices x {quantiles} quantiles"}
        for name, count in (("first_s", training), ("next_s", training + 1)):
            kernel = gd.SlicedWassersteinKernel(2, num_slices=slices, num_quantiles=quantiles)
            model = gd.DistributionGP(clouds[:count], targets[:count], ScaleKernel(kernel))
            acquisition = LogExpectedImprovement(gd.fit(model), targets[:count].max())
            start = time.perf_counter()
            optimize_over_pool(acquisition, pool, exclude=list(range(count)))
            row[name] = time.perf_counter() - start
        rows.append(row)
    return rows


if __name__ == "__main__":
    main(run)
