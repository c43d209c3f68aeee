"""How well are patients predicted from their cells together with age, sex and arm?

150 patients of :func:`gp_distributions.datasets.random_patients` for training and 150 for testing, with
200 to 3,000 cells in 12 markers. In ``patients``, the response depends on three markers, age and arm;
in ``covariates do not matter`` on the markers only; in ``bags do not matter`` on age and arm only. The
noise has a standard deviation of 0.3, and each effect one of 1.

- ``default``: ``DistributionGP(MixedInputs(...), y)``.
- ``by hand``: the structure of :func:`gp_distributions.mixed_kernel` with the largest mean ``r2`` on the
  test patients, which nobody knows in advance.
- ``alone``: a model of only the block that matters.

All hyperparameters maximise the marginal likelihood. Columns: ``r2`` and ``coverage`` of 95% intervals
are means over seeds, ``lowest`` is the smallest ``r2``, and ``cost`` is how much ``r2`` lies below that
of ``by hand`` or ``alone``.

    python -m benchmarks.prediction.patients [--quick] [--seeds 10]
"""

from __future__ import annotations

import statistics

import torch
from sklearn.metrics import r2_score
from torch import Tensor
from tqdm import tqdm

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import limit
from gp_distributions.calibration import calibration
from gp_distributions.datasets import random_patients
from gp_distributions.kernels.mixed import STRUCTURES, Structure

LONG = True

TASKS: dict[str, dict[str, float]] = {
    "patients": {},
    "covariates do not matter": {"covariates": 0.0},
    "bags do not matter": {"cells": 0.0},
}
ALONE = {"covariates do not matter": "cells", "bags do not matter": "covariates"}
SEEDS = 10

Score = tuple[float, float]


def score(model: gd.DistributionGP, X: gd.MixedInputs, y: Tensor) -> Score:
    """Return R^2 and coverage of predictions."""
    mean, std = model.predict(X)
    return r2_score(y, mean), float(calibration(y, mean, std).coverage)


def scores(task: str, options: Options) -> dict[str, list[Score]]:
    """Return the scores of each model of a task, for each seed."""
    train, test, dim = (12, 8, 3) if options.quick else (150, 150, 12)
    sizes = (20, 60) if options.quick else (200, 3000)
    structures: tuple[Structure, ...] = STRUCTURES if task == "patients" else ()
    found: dict[str, list[Score]] = {}
    for seed in tqdm(range(options.seeds), desc=task, leave=False, disable=None):
        patients = random_patients(train + test, dim=dim, sizes=sizes, seed=seed, **TASKS[task])
        X, y = patients.inputs, torch.from_numpy(patients.response)
        model = gd.fit(gd.DistributionGP(X[:train], y[:train]))
        found.setdefault("default", []).append(score(model, X[train:], y[train:]))
        distance = gd.SlicedWasserstein(dim)  # which embeds the cells once for all models
        for structure in structures:
            kernels = {"cells": gd.DistributionKernel(distance)}
            kernel = gd.mixed_kernel(X[:train], kernels, structure=structure)
            model = gd.fit(gd.DistributionGP(X[:train], y[:train], kernel))
            found.setdefault(structure, []).append(score(model, X[train:], y[train:]))
        if task in ALONE:
            alone = gd.MixedInputs(**{ALONE[task]: X.blocks[ALONE[task]]})
            model = gd.fit(gd.DistributionGP(alone[:train], y[:train]))
            found.setdefault("alone", []).append(score(model, alone[train:], y[train:]))
    return found


TARGETS = (
    *(
        limit(
            f"{called}: R² below that of {best}",
            "<= 0.01",
            "cost",
            name=f"{task}: default",
            asked=task == "patients",
        )
        for task, called, best in (
            ("patients", "patients", "the best structure by hand"),
            ("covariates do not matter", "patients, covariates do not matter", "bags alone"),
            ("bags do not matter", "patients, bags do not matter", "covariates alone"),
        )
    ),
    limit(
        "patients: coverage of 95% intervals",
        "0.92 to 0.97",
        "coverage",
        name="patients: default",
        asked=True,
    ),
)


def run(options: Options) -> list[Row]:
    """Return one row per task and model."""
    rows: list[Row] = []
    for task in TASKS:
        found = scores(task, options)
        r2 = {name: statistics.fmean(r2 for r2, _ in each) for name, each in found.items()}
        best = "alone" if task in ALONE else max(STRUCTURES, key=r2.__getitem__)
        by_hand = "alone" if task in ALONE else f"by hand ({best})"
        for label, name in (("default", "default"), (by_hand, best)):
            rows.append(
                {
                    "name": f"{task}: {label}",
                    "r2": r2[name],
                    "lowest": min(value for value, _ in found[name]),
                    "coverage": statistics.fmean(coverage for _, coverage in found[name]),
                    "cost": r2[best] - r2[name],
                }
            )
    return rows


if __name__ == "__main__":
    main(run)
