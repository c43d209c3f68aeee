"""How much do acquisition functions of clouds cost, on t-batches and over a large pool?

**t-batches**: the time of the value and gradient of log expected improvement on 256 t-batches of
one new cloud, relative to that of a closed form of the same GP on precomputed training features.
Both sides include the embedding.

**100 000 candidates**: the time of ``optimize_over_pool`` in seconds, for clouds of 64 atoms in the
plane, 50 of them evaluated. The first call embeds all clouds; the next call has one more
evaluation.

    python -m benchmarks.speed.acquisition_speed [--quick] [--repeats 9]
"""

from __future__ import annotations

import itertools
import time

import torch
from botorch.acquisition import LogExpectedImprovement
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from benchmarks.harness import Options, Row, Side, Work, compare, interleave, main
from benchmarks.speed import t_batch_speed
from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel, fit
from gp_distributions.bayesopt import Pool, optimize_over_pool


def t_batches(options: Options) -> list[Row]:
    """Compare acquisition values and gradients of clouds with a closed form on features."""
    batches, training, atoms = (8, 5, 20) if options.quick else (256, 50, 100)
    train = t_batch_speed.clouds(training, atoms=atoms, seed=0)
    targets = train.points.square().mean((-2, -1), keepdim=True).squeeze(-1).log()
    kernel = ScaleKernel(SlicedWassersteinKernel(train.dim, profile="gaussian"))
    model = DistributionGP(train, targets, kernel)
    t_batch_speed.set_hyperparameters(model)
    distance = model.covar_module.base_kernel.distance
    posterior = t_batch_speed.closed_form(model, distance.embed(train.pack()), targets)
    best = targets.max()
    normal = torch.distributions.Normal(0.0, 1.0)

    def closed_form(rows: Tensor) -> Tensor:
        mean, variance = posterior(distance.embed(rows))
        sigma = variance.clamp_min(1e-12).sqrt()
        u = (mean - best) / sigma
        return (sigma * (normal.log_prob(u).exp() + u * normal.cdf(u))).log().squeeze(-1)

    acquisitions = {"ours": LogExpectedImprovement(model, best), "closed form": closed_form}

    def side(name: str) -> Side:
        seeds = itertools.count(1)

        def prepare() -> Work:
            rows = t_batch_speed.clouds(batches, 1, atoms=atoms, seed=next(seeds)).pack()
            rows.requires_grad_()

            def work() -> None:
                acquisitions[name](rows).sum().backward()

            return work

        return prepare

    timings = interleave(
        {name: side(name) for name in acquisitions}, repeats=options.repeats, label="t-batches"
    )
    return [
        compare(
            f"{batches} t-batches, LogEI with gradient / closed form",
            timings["ours"].median,
            timings["closed form"].median,
        )
    ]


def large_pool(options: Options) -> list[Row]:
    """Time a search over many candidates, with and without keeping their features."""
    size, training = (500, 10) if options.quick else (100_000, 50)
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(size, 64, 2, generator=generator, dtype=torch.float64)
    spreads = 0.2 + torch.rand(size, 1, 2, generator=generator, dtype=torch.float64)
    clouds = PointClouds(points * spreads)
    targets = spreads.squeeze(1).prod(-1)
    rows: list[Row] = []
    for slices, quantiles in ((16, 16), (100, 100)):
        pool = Pool(clouds)
        row: Row = {"name": f"pool of {size}, {slices} slices x {quantiles} quantiles"}
        for name, count in (("first_s", training), ("next_s", training + 1)):
            taken = list(range(count))
            covariance = SlicedWassersteinKernel(
                2, num_slices=slices, num_quantiles=quantiles, profile="matern52"
            )
            model = fit(DistributionGP(clouds[:count], targets[:count], ScaleKernel(covariance)))
            acquisition = LogExpectedImprovement(model, targets[:count].max())
            start = time.perf_counter()
            optimize_over_pool(acquisition, pool, exclude=taken)
            row[name] = time.perf_counter() - start
        rows.append(row)
    return rows


def run(options: Options) -> list[Row]:
    """Measure t-batches, then the large pool."""
    return t_batches(options) + large_pool(options)


if __name__ == "__main__":
    main(run)
