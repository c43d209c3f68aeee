r"""How many slices and quantiles does a kernel of the sliced Wasserstein distance need?

Meunier, Pontil and Ciliberto 2022 compute the distance from ``M`` random directions and ``N`` random
quantiles of each, a third stage of sampling after distributions and their points, and leave open how
the risk depends on ``M`` and ``N``. Here it is measured for Gaussian processes with SW2 and the profile
Matern 5/2 that count the modes of mixtures with up to ten components in two and in ten dimensions
(``mode_counting``, without rounding): 200 bags of 100 points for training, 150 for
testing. Hyperparameters maximise the marginal likelihood for each ``M`` and ``N``.

- ``random``: independent directions and levels of quantiles, as in the paper;
- ``even``: the directions of ``SlicedWasserstein``, the exact means, and averages of quantiles over
  equal cells.

Columns: the error with so many ``slices`` at N = 100, or ``quantiles`` at M = 100, relative to the
error of the mean of the training targets, mean over seeds; and ``enough``, the smallest number whose
error is at most 2% above the error of the largest. Bags and random directions are drawn by the same
seed. ``figures/slices_and_quantiles.png`` shows the errors.

    python -m benchmarks.papers.slices_and_quantiles [--quick] [--seeds 5]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

import gp_distributions as gd
from benchmarks.harness import Options, Row, drawing, main
from benchmarks.papers.mode_counting import Task, bags

FULL = 100  # of what is not swept
Squared = Callable[[Tensor, int, int, int], Tensor]


@dataclass(frozen=True)
class Sweep:
    """Numbers of slices or of quantiles."""

    name: str
    numbers: Sequence[int]

    def at(self, number: int) -> tuple[int, int]:
        """Numbers of slices and quantiles."""
        return (number, FULL) if self.name == "slices" else (FULL, number)


SWEEPS = (
    Sweep("slices", (1, 2, 5, 10, 20, 50, 100, 200)),
    Sweep("quantiles", (1, 2, 5, 10, 20, 50, 100)),
)
QUICK = (Sweep("slices", (1, 5)), Sweep("quantiles", (1, 5)))


@functools.cache
def distance(dim: int, slices: int, quantiles: int) -> gd.SlicedWasserstein:
    """Sliced Wasserstein distance, cached because its directions are optimised at construction."""
    return gd.SlicedWasserstein(dim, num_slices=slices, num_quantiles=quantiles)


def even(points: Tensor, slices: int, quantiles: int, seed: int) -> Tensor:
    """Squared distances from evenly spread slices."""
    del seed
    found = distance(points.shape[-1], slices, quantiles)
    squared = found.squared(gd.PointClouds(points).pack())
    found.clear_cache()
    return squared


def random(points: Tensor, slices: int, quantiles: int, seed: int) -> Tensor:
    """Squared distances from random slices and quantiles."""
    generator = torch.Generator().manual_seed(seed)
    size, dim = points.shape[-2:]
    directions = torch.randn(slices, dim, generator=generator, dtype=points.dtype)
    levels = torch.rand(quantiles, generator=generator, dtype=points.dtype)
    projected = (points @ normalize(directions).T).sort(dim=-2).values
    features = projected[:, (levels * size).long()].flatten(1)
    return torch.cdist(features, features).square() / features.shape[-1]


SIDES: dict[str, Squared] = {"random": random, "even": even}


def error(squared: Tensor, targets: Tensor, train: int) -> float:
    """Error on test bags, relative to that of the mean of the training targets."""
    index = torch.arange(len(targets), dtype=targets.dtype).unsqueeze(-1)
    kernel = gd.DistributionKernel(gd.PrecomputedDistance(squared), "matern52")
    model = gd.DistributionGP(index[:train], targets[:train], kernel)
    gd.fit(model)
    mean, _ = model.predict(index[train:])
    truth = targets[train:]
    constant = (truth - targets[:train].mean()).square().mean()
    return float(((mean - truth).square().mean() / constant).sqrt())


def save_curves(sweeps: Sequence[Sweep], rows: Sequence[Row], options: Options) -> None:
    """Draw the errors against the numbers."""
    with drawing(
        "slices_and_quantiles", options, len(sweeps), figsize=(9, 3.6), sharey=True
    ) as axes:
        for axis, sweep in zip(axes, sweeps, strict=True):
            for row in rows:
                if sweep.name in row:
                    line = "-o" if row["side"] == "even" else "--s"
                    values = [row[str(number)] for number in sweep.numbers]
                    axis.semilogx(
                        sweep.numbers, values, line, label=f"{row[sweep.name]}, {row['side']}"
                    )
            axis.set(xlabel=sweep.name)
            axis.legend()
        axes[0].set(ylabel="error over that of a constant")


def run(options: Options) -> list[Row]:
    """Return one row per sweep, task and side."""
    sweeps = QUICK if options.quick else SWEEPS
    clouds, points = (30, 20) if options.quick else (200, 100)
    tasks = [Task(clouds, points, 10, dim, (0, 0, 0)) for dim in (2, 10)]
    found: dict[tuple[str, int, str, int], list[float]] = {}
    total = len(tasks) * options.seeds
    with tqdm(total=total, leave=False, disable=None) as progress:
        for task in tasks:
            for seed in range(options.seeds):
                rows, numbers = bags(task, seed)
                cloud_points = gd.PointClouds.unpack(rows, task.dim).points
                for sweep in sweeps:
                    for side, squared_of in SIDES.items():
                        for number in sweep.numbers:
                            squared = squared_of(cloud_points, *sweep.at(number), seed)
                            key = (sweep.name, task.dim, side, number)
                            value = error(squared, numbers.double(), task.clouds)
                            found.setdefault(key, []).append(value)
                progress.update()
    result: list[Row] = []
    for sweep in sweeps:
        for task in tasks:
            for side in SIDES:
                means = [
                    float(np.mean(found[sweep.name, task.dim, side, number]))
                    for number in sweep.numbers
                ]
                enough = next(
                    number
                    for number, mean in zip(sweep.numbers, means, strict=True)
                    if mean <= 1.02 * means[-1]
                )
                columns = dict(zip(map(str, sweep.numbers), means, strict=True))
                result.append(
                    {
                        sweep.name: f"modes, d = {task.dim}",
                        "side": side,
                        **columns,
                        "enough": enough,
                    }
                )
    if not options.quick:
        save_curves(sweeps, result, options)
    return result


if __name__ == "__main__":
    main(run)
