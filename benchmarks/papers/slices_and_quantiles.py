r"""How many slices and quantiles does a kernel of the sliced Wasserstein distance need?

Meunier, Pontil and Ciliberto 2022 compute the distance from ``M`` random directions and ``N`` random
quantiles of each, a third stage of sampling after distributions and their points, and leave open how
the risk depends on ``M`` and ``N``. Here it is measured for Gaussian processes with SW2 and the profile
Matern 5/2 that count the modes of mixtures with up to ten components in two and in ten dimensions
(``mode_counting``, without rounding): 200 bags of 100 points for training, 150 for
testing. Hyperparameters maximise the marginal likelihood for each ``M`` and ``N``.

- ``random``: independent directions, as in the paper, and independent levels of quantiles, the same for
  all directions, which algorithm 1 of the paper draws anew for each;
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
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, drawing, main, means, progress
from benchmarks.papers.mode_counting import Task, bags
from benchmarks.regression import relative_error, squared_once

FULL = 100  # of what is not swept
SWEEPS: dict[str, Sequence[int]] = {
    "slices": (1, 2, 5, 10, 20, 50, 100, 200),
    "quantiles": (1, 2, 5, 10, 20, 50, 100),
}


@functools.cache
def distance(dim: int, slices: int, quantiles: int) -> gd.SlicedWasserstein:
    """Sliced Wasserstein distance, cached because its directions are optimised at construction."""
    return gd.SlicedWasserstein(dim, num_slices=slices, num_quantiles=quantiles)


def even(points: Tensor, slices: int, quantiles: int, seed: int) -> Tensor:
    """Squared distances from evenly spread slices."""
    found = distance(points.shape[-1], slices, quantiles)
    return squared_once(found, gd.PointClouds(points).pack())


def random(points: Tensor, slices: int, quantiles: int, seed: int) -> Tensor:
    """Squared distances from random slices and quantiles."""
    draws, (size, dim) = Draws(seed), points.shape[-2:]
    directions, levels = draws.normal(slices, dim), draws.uniform(quantiles)
    projected = (points @ normalize(directions).T).sort(dim=-2).values
    features = projected[:, (levels * size).long()].flatten(1)
    return torch.cdist(features, features).square() / features.shape[-1]


SIDES: dict[str, Callable[[Tensor, int, int, int], Tensor]] = {"random": random, "even": even}


def save_curves(sweeps: Mapping[str, Sequence[int]], rows: Sequence[Row], options: Options) -> None:
    """Draw the errors against the numbers."""
    name = "slices_and_quantiles"
    with drawing(name, options, len(sweeps), figsize=(9, 3.6), sharey=True) as axes:
        for axis, (sweep, numbers) in zip(axes, sweeps.items(), strict=True):
            for row in rows:
                if sweep in row:
                    line = "-o" if row["side"] == "even" else "--s"
                    values = [row[str(number)] for number in numbers]
                    axis.semilogx(numbers, values, line, label=f"{row[sweep]}, {row['side']}")
            axis.set(xlabel=sweep)
            axis.legend()
        axes[0].set(ylabel="error over that of a constant")


def run(options: Options) -> list[Row]:
    """Return one row per sweep, task and side."""
    sweeps = dict.fromkeys(SWEEPS, (1, 5)) if options.quick else SWEEPS
    clouds, points = (30, 20) if options.quick else (200, 100)
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    for dim in (2, 10):
        task = Task(clouds, points, 10, dim)
        for seed in progress(range(options.seeds), f"d = {dim}"):
            rows, counts = bags(task, seed)
            drawn = gd.PointClouds.unpack(rows, dim).points
            for sweep, numbers in sweeps.items():
                for side, squared in SIDES.items():
                    errors = {}
                    for number in numbers:
                        sizes = (number, FULL) if sweep == "slices" else (FULL, number)
                        matrix = squared(drawn, *sizes, seed)
                        errors[str(number)] = relative_error(matrix, counts.double(), clouds)[0]
                    found.setdefault((sweep, dim, side), []).append(errors)
    result: list[Row] = []
    for sweep in sweeps:
        for (name, dim, side), scores in found.items():
            if name == sweep:
                mean = means(scores)
                last = list(mean.values())[-1]
                enough = next(int(key) for key, value in mean.items() if value <= 1.02 * last)
                row: Row = {sweep: f"modes, d = {dim}", "side": side}
                result.append(row | mean | {"enough": enough})
    if not options.quick:
        save_curves(sweeps, result, options)
    return result


if __name__ == "__main__":
    main(run)
