"""Does a search find the most efficient propeller blade that gives enough thrust?

A pool of 1,000 blades (``datasets.random_blades``, other blades and meshes for each seed), as triangles
with normals. The search maximises the efficiency, among blades whose thrust is at least the 75th
percentile of the pool; 10 random and 40 chosen evaluations. Its outcomes are
``log(efficiency / (1 - efficiency))`` and, as a constraint, the logarithm of the required thrust over
the thrust, each with a model.

- ``default``: no kernel is given: an equal mixture of an isotropic kernel and of two kernels on the
  principal components of the pool.
- ``designs``: the same search by BoTorch's default kernel on the 42 parameters of the blades, which a
  pool of meshes does not have.
- ``random``: random search.

Settings were not chosen; seeds 100 and on were used while this was written, and seeds 4000 to 4009 were
run once. Columns: the number of seeds in which a blade among the best ten of the 250 that hold the
thrust was found (``top``), and the best of them (``best``); evaluations until then, means over seeds, a
miss counting as 50; the mean difference between the efficiency of the best blade of the pool and of
the best found (``regret``), and the seconds of a search.

    python -m benchmarks.search.blade_search [--quick]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import limit
from benchmarks.search.searches import Outcome, column
from gp_distributions.bayesopt import Pool
from gp_distributions.datasets import Blades, random_blades

LONG = True
FIRST, EVALUATIONS, TOP, SHARE = 4000, 50, 10, 0.75
TARGETS = (
    limit(
        "blades: searches of ten for the most efficient one with enough thrust that reach the best ten",
        ">= 9",
        "top",
        name="default",
        reason="Perhaps chance: it misses pools 4000 and 4001, and none of six more, seeds 100 to 105; "
        "version 0.3.1 missed one of five. In pool 4000, many of its blades do not hold the thrust.",
    ),
)


def on_parameters(X: Tensor, Y: Tensor) -> gd.DistributionGP:
    """A GP on the parameters of blades with BoTorch's default kernel for each outcome."""
    width, outputs = X.shape[-1], Y.shape[-1]
    batch = torch.Size([outputs]) if outputs > 1 else torch.Size()
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=width, batch_shape=batch)
    return gd.DistributionGP(X, Y, kernel, input_transform=Normalize(width))


def search(blades: Blades, pool: Pool, model: Any, seed: int, evaluations: int) -> Outcome:
    """Search a pool, and return when the best blades were found."""
    required = np.quantile(blades.thrust, SHARE)
    holds = blades.thrust >= required
    order = np.argsort(np.where(holds, -blades.efficiency, np.inf))
    place = gd.PoolSearch(pool)

    def evaluate(index: int) -> list[float]:
        efficiency = blades.efficiency[index]
        return [np.log(efficiency / (1 - efficiency)), np.log(required / blades.thrust[index])]

    if model == "random":
        found = place.initial(evaluations, seed)
    else:
        optimizer = gd.ShapeOptimizer(place, constraints=1, model=model, seed=seed)
        optimizer.run(evaluate, evaluations, progress=False)
        found = [evaluation.candidate for evaluation in optimizer.evaluations]
    held = [index for index in found if holds[index]]
    best = max(blades.efficiency[held], default=0.0)
    outcome: Outcome = {"regret": blades.efficiency[order[0]] - best}
    for name, count in (("top", TOP), ("best", 1)):
        hit = np.isin(found, order[:count])
        outcome[name], outcome[f"{name}_at"] = (
            hit.any(),
            hit.argmax() + 1 if hit.any() else evaluations,
        )
    return outcome


def run(options: Options) -> list[Row]:
    """Search the pool of each seed by each way."""
    seeds = range(100, 101) if options.quick else range(FIRST, FIRST + 10)
    number, evaluations = (12, 11) if options.quick else (1000, EVALUATIONS)
    found: dict[str, list[Outcome]] = {}
    for seed in progress(seeds, "blades"):
        blades = random_blades(number, seed=seed, meshing_seed=seed)
        surfaces = gd.PointClouds.from_meshes(blades.meshes, normals=True)
        ways: dict[str, Any] = {
            "default": (surfaces, None),
            "designs": (torch.from_numpy(blades.parameters), on_parameters),
            "random": (surfaces, "random"),
        }
        for name, (candidates, model) in ways.items():
            start = time.perf_counter()
            outcome = search(blades, Pool(candidates), model, seed, evaluations)
            outcome["seconds"] = time.perf_counter() - start
            found.setdefault(name, []).append(outcome)
    rows: list[Row] = []
    for name, outcomes in found.items():
        row: Row = {"name": name}
        for key in ("top", "best"):
            row[key] = float(column(outcomes, key).sum())
            row[f"{key}_at"] = float(column(outcomes, f"{key}_at").mean())
        row["each"] = " ".join(f"{each:.0f}" for each in column(outcomes, "top_at"))
        rows.append(row | {k: float(column(outcomes, k).mean()) for k in ("regret", "seconds")})
    return rows


if __name__ == "__main__":
    main(run)
