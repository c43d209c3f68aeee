"""Does comparing kernels find the one that predicts best, are stacks better, and is the default?

``compare(default_kernels(X), X, y)`` ranks and weighs kernels by leave-one-out log densities of the
training clouds; the log densities of held-out targets show what that is worth. Ten tasks, most of them
of other benchmarks:

- ``airfoils``: lift to drag from 100 outlines of 64 points, and 200 held out; ``turned airfoils``: the
  same outlines, each turned by a random angle.
- ``cells``: the isoperimetric quotient of 100 outlines of cells in unknown pose, as 64 points at equal
  arc length, and 200 held out.
- ``modes``: the number of components of Gaussian mixtures with 1 to 10 of them in two dimensions, from
  100 bags of 50 points, and 100 held out; ``modes, d = 10``: the same in ten dimensions, with 1 or 2.
- ``entropy``: that of the first coordinate of a rotated normal distribution, 50 bags of 50 points, and
  50 held out.
- ``toy``: the Gaussian toy of Bachoc et al. 2023 in four dimensions, 50 clouds and 50 held out.
- ``patients``: the response of 100 random patients with 100 to 400 cells in 6 markers, age, sex and arm,
  and 150 held out.
- ``molecules``: what a line in the numbers of atoms leaves of the energies of 500 molecules of QM9, from
  their clouds of pairs, and 1000 held out.
- ``digits``: the angle, between -60 and 60 degrees, by which images of 8 x 8 pixels were turned, 150
  images as weighted clouds of pixels, and 200 held out.

Columns are means over seeds, log densities in nats for each held-out target: ``best`` is that of the
best single kernel, chosen for each seed with the held-out targets, ``chosen`` that of the kernel which
``compare`` ranks first, ``sw2`` that of SW2 with Matern 5/2, and ``stacked`` that of the mixture.
``gain`` is ``stacked`` minus ``best``. ``spearman`` is the rank correlation of the kernels'
leave-one-out and held-out log densities, ``coverage`` that of 95% intervals of the mixture, and
``seconds`` the time of ``compare``. ``default`` is the log density of ``DistributionGP(X, y)`` without a
kernel after ``fit``, ``default_coverage`` that of its intervals, and ``isotropic`` the density of the
first of its members. The row ``all`` counts tasks: ``never_below`` those where ``gain`` is at least
-0.02, ``above_best`` those where it is positive, ``above_sw2`` those where ``stacked`` exceeds ``sw2``,
and ``not_below_isotropic`` those where ``default`` is not below ``isotropic``. Settings were chosen on
the seeds 900 and above; the seeds reported are 2000, 2001, and so on, half as many as ``--seeds``; the
default was not developed on these tasks.

    python -m benchmarks.prediction.comparison [--quick] [--seeds 4]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import Tensor

import gp_distributions as gd
from benchmarks.data.cells import load_cells
from benchmarks.data.molecules import Molecules, load_molecules
from benchmarks.data.patients import random_patients
from benchmarks.draws import Draws, rotations
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import limit, number
from benchmarks.papers import entropy_regression, mode_counting
from benchmarks.papers.gaussian_toy import paired_toy
from benchmarks.prediction import molecules
from benchmarks.shapes import airfoil_clouds, circularity, turned
from gp_distributions.kernels import default_kernels
from gp_distributions.metrics import NormalPredictions

LONG = True

SEEDS = 4
FROZEN_SEEDS = 2000


@dataclass(frozen=True)
class Task:
    """Inputs and targets, of which the first ``train`` are for training."""

    X: gd.PointClouds | gd.MixedInputs
    y: Tensor
    train: int


TARGETS = tuple(
    limit(f"ten tasks: {text}", target, column, name="all", asked=asked)
    for text, target, column, asked in (
        ("tasks with the stack at most .02 below the best kernel", ">= 10", "never_below", True),
        ("tasks with the stack above the best kernel", ">= 5", "above_best", False),
        ("tasks with the stack above SW2, Matern 5/2", ">= 8", "above_sw2", True),
        ("rank correlation with held-out log densities", ">= 0.7", "spearman", False),
        (
            "tasks with the default not below its isotropic kernel",
            ">= 9",
            "not_below_isotropic",
            False,
        ),
        ("least coverage of the default", ">= 0.85", "least_coverage", False),
    )
)


def _drawn(X: gd.PointClouds, y: Tensor, train: int, test: int, seed: int) -> Task:
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[: train + test]
    return Task(X[order], y[order], train)


def airfoils(seed: int) -> Task:
    """Outlines and their lift to drag."""
    _, clouds, y = airfoil_clouds(None, 64)
    return _drawn(clouds, y, 100, 200, seed)


def turned_airfoils(seed: int) -> Task:
    """Outlines in unknown pose and their lift to drag."""
    task = airfoils(seed)
    assert isinstance(task.X, gd.PointClouds)
    X = gd.PointClouds(turned(task.X.points, seed), task.X.weights, geometric=True)
    return Task(X, task.y, task.train)


def cells(seed: int) -> Task:
    """Outlines of cells and their isoperimetric quotients."""
    outlines = load_cells().outlines
    clouds = gd.PointClouds.from_curves(outlines, atoms=64)
    return _drawn(clouds, circularity(outlines), 100, 200, seed)


def modes(seed: int, *, components: int = 10, dim: int = 2) -> Task:
    """Bags of Gaussian mixtures and their numbers of components."""
    return Task(*mode_counting.counted(100, 50, components, dim, seed, kept=200), 100)


def entropy(seed: int) -> Task:
    """Bags of a rotated normal distribution and the entropy of a marginal."""
    points, targets = entropy_regression.experiment(50, seed)
    return Task(gd.PointClouds(points), targets, 50)


def toy(seed: int) -> Task:
    """Isotropic Gaussians and a function of their means and spreads."""
    X, y, new_X, new_y = paired_toy(4, seed)
    clouds = gd.PointClouds(torch.cat([X.points, new_X.points]))
    return Task(clouds, torch.cat([y, new_y]), len(X))


def patients(seed: int) -> Task:
    """Bags of cells beside age, sex and arm, and a response."""
    drawn = random_patients(250, dim=6, sizes=(100, 400), seed=seed)
    return Task(drawn.inputs, torch.from_numpy(drawn.response), 100)


@cache
def _molecules() -> Molecules:
    return load_molecules()


def energies(seed: int) -> Task:
    """Clouds of pairs of atoms, and what a line in the counts leaves of the energies."""
    data, train = _molecules(), 500
    order = np.random.default_rng(seed).permutation(len(data))[: train + 1000]
    targets = molecules.atomisation(data)
    residuals = (targets - molecules.line(data.counts, targets, order[:train]))[order]
    clouds = molecules.pairs(data.clouds[torch.from_numpy(order)])
    return Task(clouds, torch.from_numpy(residuals), train)


def digits(seed: int) -> Task:
    """Turned images of digits and the angles."""
    clouds = gd.PointClouds.from_images(torch.from_numpy(load_digits().images))
    angles = 120 * Draws(seed).uniform(len(clouds)) - 60
    points = clouds.points @ rotations(angles.deg2rad()).mT
    return _drawn(gd.PointClouds(points, clouds.weights, geometric=True), angles, 150, 200, seed)


TASKS: dict[str, Callable[[int], Task]] = {
    "airfoils": airfoils,
    "turned airfoils": turned_airfoils,
    "cells": cells,
    "modes": modes,
    "modes, d = 10": lambda seed: modes(seed, components=2, dim=10),
    "entropy": entropy,
    "toy": toy,
    "patients": patients,
    "molecules": energies,
    "digits": digits,
}
QUICK: dict[str, Callable[[int], Task]] = {"entropy": entropy, "toy": toy}


def score(task: Task, seed: int, *, quick: bool) -> dict[str, float]:
    """Compare the default kernels on the training inputs, and score them on those held out."""
    train, test = slice(task.train), slice(task.train, None)
    if quick:
        train, test = slice(15), slice(task.train, task.train + 10)
    kernels = default_kernels(task.X[train])
    if quick:
        kernels = {name: kernels[name] for name in ("sw2 matern52", "sw2 exponential")}
    start = time.perf_counter()
    found = gd.compare(kernels, task.X[train], task.y[train], seed=seed, progress=False)
    seconds = time.perf_counter() - start
    X, y, names = task.X[test], task.y[test], list(found.models)
    members = [NormalPredictions.of(y, *found.models[name].predict(X)) for name in names]
    singles = [member.log_density.mean().item() for member in members]
    weights = torch.tensor([found.weights[name] for name in names], dtype=torch.float64)
    mixture = NormalPredictions.mixed(members, weights)
    ranked = [found.log_density[name].mean().item() for name in names]
    stacked, best = mixture.log_density.mean().item(), max(singles)
    model = gd.fit(gd.DistributionGP(task.X[train], task.y[train]), progress=False)
    default, isotropic = (
        NormalPredictions.of(y, *part.predict(X)) for part in (model, model.members[0])
    )
    return {
        "stacked": stacked,
        "best": best,
        "chosen": singles[0],
        "sw2": singles[names.index("sw2 matern52")],
        "gain": stacked - best,
        "spearman": float(spearmanr(ranked, singles).statistic),
        "coverage": mixture.scores()["coverage"],
        "seconds": seconds,
        "default": default.log_density.mean().item(),
        "default_coverage": default.scores()["coverage"],
        "isotropic": isotropic.log_density.mean().item(),
    }


def run(options: Options) -> list[Row]:
    """Return a row for each task, and one that counts the tasks where the mixture is not worse."""
    tasks = QUICK if options.quick else TASKS
    seeds = range(FROZEN_SEEDS, FROZEN_SEEDS + max(1, options.seeds // 2))
    rows: list[Row] = []
    for name, make in progress(tasks.items()):
        scores = [score(make(seed), seed, quick=options.quick) for seed in seeds]
        rows.append({"name": name, **means(scores)})
    gains = [number(row, "gain") for row in rows]
    summary: Row = {
        "name": "all",
        "tasks": len(rows),
        "never_below": sum(gain >= -0.02 for gain in gains),
        "least_gain": min(gains),
        "above_best": sum(gain > 0 for gain in gains),
        "above_sw2": sum(number(r, "stacked") > number(r, "sw2") for r in rows),
        "not_below_isotropic": sum(number(r, "default") >= number(r, "isotropic") for r in rows),
        "least_coverage": min(number(r, "default_coverage") for r in rows),
        "spearman": sum(number(row, "spearman") for row in rows) / len(rows),
    }
    return [*rows, summary]


if __name__ == "__main__":
    main(run)
