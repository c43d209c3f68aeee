"""How well are patients predicted from cells with age, sex and arm, and which structure suits them?

150 patients of ``data.random_patients`` for training and 150 for testing, with
200 to 3,000 cells in 12 markers. In ``patients``, the response depends on three markers, age and arm;
in ``covariates do not matter`` on the markers only; in ``bags do not matter`` on age and arm only. The
noise has a standard deviation of 0.3, and each effect one of 1.

Rows with ``80`` have 80 patients for training and 300 for testing, with 30 to 100 cells in 3 markers.
The effects of cells and covariates ``add up``, or they also ``interact`` (then .7, .7 and 1).
``product``, ``sum`` and ``sum+product`` are the structures of :func:`gp_distributions.mixed_kernel`,
whose default was chosen on seeds 1000 to 1003; half as many seeds.

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

from collections.abc import Iterable
from typing import Any

import torch
from gpytorch.kernels import Kernel

import gp_distributions as gd
from benchmarks.data.patients import random_patients
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import limit
from benchmarks.regression import Scores, score, summary
from gp_distributions.kernels.mixed import STRUCTURES, Structure

LONG = True

TASKS: dict[str, dict[str, float]] = {
    "patients": {},
    "covariates do not matter": {"covariates": 0.0},
    "bags do not matter": {"cells": 0.0},
}
# Effects of 80 patients.
FEW: dict[str, dict[str, float]] = {
    "add up": {},
    "interact": {"cells": 0.7, "covariates": 0.7, "interaction": 1.0},
}
RELEVANT = {"covariates do not matter": "cells", "bags do not matter": "covariates"}
SEEDS = 10


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


def fits(
    numbers: tuple[int, int],
    structures: Iterable[Structure | None],
    alone: str | None,
    **data: Any,
) -> dict[str, Scores]:
    """Draw patients, and score models with several structures and of one block alone.

    Args:
        numbers: Numbers of patients for training and for testing.
        structures: Structures of kernels, ``None`` for the default.
        alone: The only block that matters, if there is one.
        **data: Options of ``random_patients``.
    """
    patients = random_patients(sum(numbers), **data)
    X, y = patients.inputs, torch.from_numpy(patients.response)
    known, new = slice(numbers[0]), slice(numbers[0], None)

    def fitted(inputs: gd.MixedInputs, kernel: Kernel | None = None) -> Scores:
        model = gd.fit(gd.DistributionGP(inputs[known], y[known], kernel))
        return score(model, inputs[new], y[new])

    found: dict[str, Scores] = {}
    distance = gd.SlicedWasserstein(data["dim"])  # which embeds the cells once for all models
    for structure in structures:
        kernel = None
        if structure is not None:
            kernels = {"cells": gd.DistributionKernel(distance)}
            kernel = gd.mixed_kernel(X[known], kernels, structure=structure)
        found[structure or "default"] = fitted(X, kernel)
    if alone:
        blocks: dict[str, Any] = {alone: X.blocks[alone]}
        found["alone"] = fitted(gd.MixedInputs(**blocks))
    return found


def run(options: Options) -> list[Row]:
    """Return one row per task and model."""
    numbers, data = (150, 150), {"dim": 12, "sizes": (200, 3000)}
    if options.quick:
        numbers, data = (12, 8), {"dim": 3, "sizes": (20, 60)}
    rows: list[Row] = []
    for task, effects in TASKS.items():
        block = RELEVANT.get(task)
        structures = (None,) if block else (None, *STRUCTURES)
        found = [
            fits(numbers, structures, block, seed=seed, **data, **effects)
            for seed in progress(range(options.seeds), task)
        ]
        r2 = {name: means([one[name] for one in found])["r2"] for name in found[0]}
        best = "alone" if block else max(STRUCTURES, key=r2.__getitem__)
        by_hand = best if block else f"by hand ({best})"
        for label, name in (("default", "default"), (by_hand, best)):
            row = summary(f"{task}: {label}", [one[name] for one in found], "r2", "coverage")
            rows.append(row | {"cost": r2[best] - r2[name]})
    numbers = (12, 8) if options.quick else (80, 300)
    for task, effects in FEW.items():
        found = [
            fits(numbers, STRUCTURES, None, seed=seed, dim=3, sizes=(30, 100), **effects)
            for seed in progress(range(max(1, options.seeds // 2)), task)
        ]
        for name in STRUCTURES:
            scores = [one[name] for one in found]
            rows.append(summary(f"80, {task}: {name}", scores, "r2", "coverage", "nlpd"))
    return rows


if __name__ == "__main__":
    main(run)
