r"""When is the sliced Wasserstein distance better than the maximum mean discrepancy, and when not?

Three families of regression tasks in the plane, each with one parameter that favours one side. There
are 100 bags of 100 points for training and 200 for testing.

- ``shift``: a bag is drawn from :math:`N(m, S)`, with mean :math:`m` uniform on [-L, L]^2 and standard
  deviations :math:`a` and 1 / a along axes that are turned by a uniform angle. The target is
  :math:`\log a`, uniform on [0, 1]; the shift is a nuisance;
- ``outliers``: a bag is drawn from :math:`N(m, I / 16)`, with mean :math:`m` uniform on [0, 1]^2, and
  each point is replaced with the given probability by one that is uniform on [-20, 20]^2. The target is
  :math:`\sin(2 \pi m_1)`;
- ``waves``: the density on the unit square is :math:`1 + a \cos(2 \pi k x_1)`. The target is :math:`a`,
  uniform on [-1, 1]; the frequency ``k`` is given.

All kernels have the profile Matern 5/2, and hyperparameters maximise the marginal likelihood. Columns
are root mean squared errors on test bags, relative to the error of the mean of the training targets,
means over seeds:

- ``sw2``, ``sw1``: sliced Wasserstein distances with 50 slices and 50 quantiles;
- ``sw2_centred``: ``sw2`` between bags shifted to mean zero;
- ``mmd_median``: the Gaussian MMD with the median distance between points as its bandwidth, with 1000
  quasi-random features;
- ``mmd``: the same with the bandwidth among 1/16, 1/8, 1/4, 1/2, 1 and 2 medians that has the largest
  leave-one-out log density of the training targets; ``factor``: the mean of its binary logarithm;
- ``fewer``: which of ``sw2`` and ``mmd`` errs less, if by more than two standard errors of the mean
  difference over seeds.

``figures/sliced_or_mmd.png`` shows ``sw2``, ``sw1`` and ``mmd``.

    python -m benchmarks.prediction.sliced_or_mmd [--quick] [--seeds 3]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

import gp_distributions as gd
from benchmarks.draws import Draws, rotations
from benchmarks.harness import Options, Row, drawing, main, means, progress
from benchmarks.regression import relative_error, squared_once
from gp_distributions.distances import Distance

Make = Callable[[int, int, float, Draws], tuple[Tensor, Tensor]]
SEEDS = 3
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2)


def shift(clouds: int, points: int, length: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Elongated clouds that are turned and shifted, and the logarithm of their longer axis."""
    targets, angles = draws.uniform(clouds), math.pi * draws.uniform(clouds)
    axes = torch.stack([targets, -targets], dim=-1).exp()
    centres = length * (2 * draws.uniform(clouds, 1, 2) - 1)
    drawn = draws.normal(clouds, points, 2) * axes.unsqueeze(-2)
    return drawn @ rotations(angles).mT + centres, targets


def outliers(clouds: int, points: int, share: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Round clouds with outliers, and a function of their location."""
    centres = draws.uniform(clouds, 1, 2)
    drawn = centres + draws.normal(clouds, points, 2) / 4
    strange = 40 * draws.uniform(clouds, points, 2) - 20
    replaced = draws.uniform(clouds, points, 1) < share
    return torch.where(replaced, strange, drawn), torch.sin(2 * math.pi * centres[:, 0, 0])


def waves(clouds: int, points: int, frequency: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Clouds with wavy densities, and the amplitude of the waves."""
    targets = 2 * draws.uniform(clouds) - 1
    cells = 64 * int(frequency)
    grid = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    density = 1 + targets.unsqueeze(-1) * torch.cos(2 * math.pi * frequency * grid)
    chosen = torch.multinomial(density, points, replacement=True, generator=draws.generator)
    first = (chosen + draws.uniform(clouds, points)) / cells
    return torch.stack([first, draws.uniform(clouds, points)], dim=-1), targets


FAMILIES: dict[str, tuple[Make, Sequence[float], str]] = {
    "shift": (shift, (0, 1, 2, 4, 8), "largest shift L"),
    "outliers": (outliers, (0, 0.01, 0.03, 0.1, 0.3), "share of outliers"),
    "waves": (waves, (1, 2, 4, 8, 16), "frequency k"),
}


@functools.cache
def sliced(p: int, center: bool, size: int) -> gd.SlicedWasserstein:
    """Sliced Wasserstein distance."""
    return gd.SlicedWasserstein(2, p=p, center=center, num_slices=size, num_quantiles=size)


def fitted(distance: Distance, rows: Tensor, targets: Tensor, train: int) -> tuple[float, float]:
    """Relative error on test clouds, and leave-one-out log density on training clouds."""
    error, model = relative_error(squared_once(distance, rows), targets, train)
    density = Normal(*model.leave_one_out()).log_prob(targets[:train])
    return error, float(density.mean())


def scores(points: Tensor, targets: Tensor, train: int, *, quick: bool) -> dict[str, float]:
    """Errors of all kernels on one task."""
    rows = gd.PointClouds(points).pack()
    size, features, factors = (10, 50, FACTORS[-2:]) if quick else (50, 1000, FACTORS)
    found = {
        name: fitted(sliced(p, center, size), rows, targets, train)[0]
        for name, p, center in (("sw2", 2, False), ("sw1", 1, False), ("sw2_centred", 2, True))
    }
    # The median distance between points of all clouds, from the first 20 of 50 clouds.
    median = float(torch.pdist(points[:train][:50, :20].flatten(0, 1)).median())
    best = -math.inf
    for factor in factors:
        distance = gd.MMD(
            2, bandwidth=factor * median, num_features=features, features="quasi_random"
        )
        error, density = fitted(distance, rows, targets, train)
        if factor == 1:
            found["mmd_median"] = error
        if density > best:
            best = density
            found |= {"mmd": error, "factor": math.log2(factor)}
    return found


def save_curves(rows: Sequence[Row], options: Options) -> None:
    """Draw the errors against the parameters of all families."""
    with drawing("sliced_or_mmd", options, len(FAMILIES), figsize=(11, 3.4)) as axes:
        for axis, (name, (_, parameters, label)) in zip(axes, FAMILIES.items(), strict=True):
            some = [row for row in rows if row["task"] == name]
            for side, line in (("sw2", "-o"), ("sw1", "-^"), ("mmd", "--s")):
                axis.plot(range(len(some)), [row[side] for row in some], line, label=side)
            axis.set_xticks(range(len(some)), [f"{parameter:g}" for parameter in parameters])
            axis.set(xlabel=label, ylim=(0, None))
            axis.legend()
        axes[0].set(ylabel="error over that of a constant")


def run(options: Options) -> list[Row]:
    """Return one row per task."""
    train, test, points = (20, 10, 20) if options.quick else (100, 200, 100)
    rows: list[Row] = []
    for name, (make, parameters, _) in FAMILIES.items():
        for parameter in progress(parameters[:1] if options.quick else parameters, name):
            each = []
            for seed in range(options.seeds):
                drawn = make(train + test, points, parameter, Draws(seed))
                each.append(scores(*drawn, train, quick=options.quick))
            gaps = np.array([one["sw2"] - one["mmd"] for one in each])
            fewer = None
            if len(gaps) > 1 and abs(gaps.mean()) > 2 * gaps.std(ddof=1) / len(gaps) ** 0.5:
                fewer = "sw2" if gaps.mean() < 0 else "mmd"
            row: Row = {"task": name, "parameter": float(parameter)}
            rows.append(row | means(each) | {"fewer": fewer})
    if not options.quick:
        save_curves(rows, options)
    return rows


if __name__ == "__main__":
    main(run)
