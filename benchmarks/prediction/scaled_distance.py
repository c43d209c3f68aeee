r"""What do learned scales of coordinates gain where few coordinates matter, and cost where all do?

- ``bags``: 110 bags for training and 300 for testing, of 100 to 300 points in 12 markers. Markers are
  normal within a bag; their means :math:`m` are standard normal, and their spreads :math:`s` uniform
  between 0.5 and 2. The response :math:`\sin(2 m_1) + m_2 + 2.3 s_3` is divided by its standard
  deviation and has noise of standard deviation 0.2. The other nine markers carry nothing. ``50
  markers``: 200 bags of 50 such markers for training, of which the same three matter.
- ``patients``: ``data.random_patients``, 150 for training and 150 for testing,
  of 200 to 3,000 cells in 12 markers, beside age, sex and arm. Three markers, age and arm matter.
- ``airfoils``: 200 for training and all others for testing; two coordinates, both of which matter.

The kernels use SW2 and Matern 5/2, ``without`` and with a :class:`ScaledDistance`; a model with ``no
kernel`` chooses by itself whether to learn scales, before its metric. The settings were chosen on bags
and patients of the seeds 1000, 1001, ... and on the airfoils of splits 5 to 9; the limit of 50 markers
on other draws. The seeds reported are 3000, 3001, ... for bags and patients, and the splits 0, 1, ...
for airfoils. Split 0 had been looked at in an earlier state of the method.

Columns: ``r2``, ``coverage`` of 95% intervals and ``nlpd`` are means over seeds; ``gain`` is the mean
gain in ``r2`` over ``without`` and ``least_gain`` the smallest of a seed; ``on_top`` is the number of
seeds in which :func:`gp_distributions.relevance` places the three markers that matter above all others,
``seconds`` is the mean time of a fit,
and ``times`` how many times that of ``without`` it is.

    python -m benchmarks.prediction.scaled_distance [--quick] [--seeds 10]
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import gp_distributions as gd
from benchmarks.data.patients import random_patients
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import limit, limits
from benchmarks.regression import Scores, kernel_of, score
from benchmarks.shapes import airfoil_clouds
from gp_distributions.distances import Distance

LONG, SEEDS = True, 10
RELEVANT = (0, 1, 2)
# The first seed of bags and patients, which no setting was chosen on.
_FIRST = 3000
TRAIN, TEST = 110, 300  # bags


@dataclass(frozen=True)
class Task:
    """Inputs and targets, which of them are for training and testing, and a function for a kernel."""

    X: gd.PointClouds | gd.MixedInputs
    y: Tensor
    train: Tensor | slice
    test: Tensor | slice
    kernel: Callable[[Distance], Kernel]
    dim: int


def marker_bags(
    seed: int, num: int = TRAIN + TEST, dim: int = 12, least: int = 100
) -> tuple[gd.PointClouds, Tensor]:
    """Draw bags of which 3 markers matter, and their targets."""
    rng = np.random.default_rng(seed)
    means, spreads = rng.standard_normal((num, dim)), rng.uniform(0.5, 2.0, (num, dim))
    sizes = np.exp(rng.uniform(math.log(least), math.log(3 * least), num)).round().astype(int)
    clouds = gd.PointClouds.from_list(
        [
            mean + spread * rng.standard_normal((size, dim))
            for mean, spread, size in zip(means, spreads, sizes, strict=True)
        ]
    )
    signal = np.sin(2 * means[:, 0]) + means[:, 1] + 2.3 * spreads[:, 2]
    return clouds, torch.from_numpy(signal / signal.std() + 0.2 * rng.standard_normal(num))


def bags(seed: int, quick: bool, dim: int = 12, train: int = TRAIN) -> Task:
    """Draw bags of which 3 markers matter."""
    train, test, dim = (60, 6, 4) if quick else (train, TEST, dim)
    X, y = marker_bags(seed, train + test, dim, 10 if quick else 100)
    return Task(X, y, slice(train), slice(train, None), kernel_of, dim)


def patients(seed: int, quick: bool) -> Task:
    """Draw patients, whose cells, age and arm matter."""
    train, test, dim = (60, 6, 4) if quick else (150, 150, 12)
    sizes = (10, 20) if quick else (200, 3000)
    drawn = random_patients(train + test, dim=dim, sizes=sizes, seed=seed)
    X, y = drawn.inputs, torch.from_numpy(drawn.response)

    def kernel(distance: Distance) -> Kernel:
        return gd.mixed_kernel(X[:train], {"cells": gd.DistributionKernel(distance)})

    return Task(X, y, slice(train), slice(train, None), kernel, dim)


def airfoils(seed: int, quick: bool) -> Task:
    """Return the outlines of a split of the airfoils."""
    foils, X, y = airfoil_clouds(*((20, 32) if quick else (None, 128)))
    train, test = map(torch.from_numpy, foils.split(12 if quick else 200, seed=seed))
    return Task(X, y, train, test, kernel_of, 2)


def scored(task: Task, model: gd.DistributionGP, seconds: float) -> Scores:
    """Score predictions, and find the last place of the markers that matter by their relevance."""
    found = score(model, task.X[task.test], task.y[task.test]) | {"seconds": seconds}
    if 2 < task.dim <= 12:
        names = [f"marker {i}" for i in range(task.dim)]
        relevance = gd.relevance(model, names=names)
        losses = {one.coordinate: one.loss for one in relevance.coordinates}
        markers = [losses[name] for name in names]
        found["place"] = max(sum(other >= markers[j] for other in markers) for j in RELEVANT)
    return found


def fits(task: Task) -> Iterator[tuple[str, Scores]]:
    """Fit the models of a task."""
    base = gd.SlicedWasserstein(task.dim)
    ways: dict[str, Distance | None] = {
        "without": base,
        "scaled": gd.ScaledDistance(base, standardize=False),
    }
    if task.dim > 2:
        ways["no kernel"] = None
    for name, distance in ways.items():
        kernel = None if distance is None else task.kernel(distance)
        start = time.perf_counter()
        model = gd.fit(gd.DistributionGP(task.X[task.train], task.y[task.train], kernel))
        yield name, scored(task, model, time.perf_counter() - start)


_STEPS = (
    "A plain fit takes .1 to .2 s on bags and airfoils, 1 s on patients. Distances at new scales "
    "represent all bags anew: in each of five folds, and in the two last steps. Without these steps, R² "
    "was lower in version 0.3: on the bags of seeds 1000 to 1013 .875, not .882, in .7 of the time."
)
TARGETS = (
    limits(
        "3 of 12 markers, without a kernel and scaled, 3 of 50 without: gain in R²",
        {
            "bags: no kernel": ">= 0.15",
            "bags: scaled": ">= 0.15",
            "50 markers: no kernel": ">= 0.3",
        },
        "gain",
        asked=True,
    ),
    limit("3 of 12 markers: coverage of 95%", "0.90 to 0.98", "coverage", name="bags: scaled"),
    limit(
        "airfoils: least gain in R² of a split", ">= -0.01", "least_gain", name="airfoils: scaled"
    ),
    limit("patients: seeds with the three on top", ">= 8", "on_top", name="patients: scaled"),
    limits(
        "3 of 12 markers, patients, airfoils: time of a fit with scales over one without",
        "<= 3",
        "times",
        [f"{task}: scaled" for task in ("bags", "patients", "airfoils")],
        reason=_STEPS,
    ),
)


def run(options: Options) -> list[Row]:
    """Return one row per task and model."""
    rows, wide = list[Row](), partial(bags, dim=50, train=200)
    list(fits(bags(0, quick=True)))  # imports what the first fit needs
    for name, make, first, seeds in (
        ("bags", bags, _FIRST, options.seeds),
        ("50 markers", wide, _FIRST, options.seeds),
        ("patients", patients, _FIRST, options.seeds),
        ("airfoils", airfoils, 0, min(options.seeds, 5)),
    ):
        found: dict[str, list[Scores]] = {}
        for index in progress(range(seeds), name):
            for model, result in fits(make(first + index, options.quick)):
                found.setdefault(model, []).append(result)
        for model, scores in found.items():
            gains = [a["r2"] - b["r2"] for a, b in zip(scores, found["without"], strict=False)]
            places = [one["place"] for one in scores if "place" in one]
            mean = means(scores)
            rows.append(
                {
                    "name": f"{name}: {model}",
                    "r2": mean["r2"],
                    "gain": None if model == "without" else sum(gains) / len(gains),
                    "least_gain": None if model == "without" else min(gains),
                    "coverage": mean["coverage"],
                    "nlpd": mean["nlpd"],
                    "on_top": sum(place <= len(RELEVANT) for place in places) if places else None,
                    "seconds": mean["seconds"],
                    "times": mean["seconds"] / means(found["without"])["seconds"],
                }
            )
    return rows


if __name__ == "__main__":
    main(run)
