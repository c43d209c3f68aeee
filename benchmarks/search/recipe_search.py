"""How good are recipes that a search on mixtures finds, beside BoTorch on the fractions?

Recipes have at most 5 of 25 ingredients with 8 properties. Two functions of them
(``benchmarks/search/recipes.py``) are maximised by 10 random recipes, the same for all ways, and 40
further ones: by ``RecipeSearch`` with the default model; by the same search with BoTorch's default
kernel on the 25 fractions; by BoTorch, ``SingleTaskGP`` on the fractions, log expected improvement and
``optimize_acqf`` under the constraint that they sum to one, cut to the five largest fractions, which are
then divided by their sum; and at random. Columns: the mean of the best values and its standard
error, the best value of each seed, the mean of the differences from BoTorch in their standard
errors, and the number of searches that end above BoTorch's. Each search is kept in
``results/recipe_search.jsonl`` as it ends, and a run goes on where the last one was stopped; a new
version of the package searches anew, beside the searches of BoTorch that were kept and do not count in
the time of the run. Those recorded here began with other random recipes, which version 0.3 drew, so that
their differences are not paired. The second function, ``effects``, is reported without a target.

    python -m benchmarks.search.recipe_search [--quick]
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import Rows, Target, find, number
from benchmarks.search.recipes import MOST, PROPERTIES, of_properties, with_effects
from benchmarks.search.searches import Outcome, Way, column, searched

LONG = True
KEPT = Path(__file__).parents[1] / "results" / "recipe_search.jsonl"
FIRST = 2100
FUNCTIONS = {"properties": of_properties, "effects": with_effects}
OURS, KERNEL, PEER, RANDOM = "RecipeSearch", "RecipeSearch, fractions", "BoTorch", "random"


def above_peer(rows: Rows) -> tuple[str, bool]:
    """Judge the differences from BoTorch, in standard errors, of which one does not decide."""
    row = find(rows, name=f"properties: seeds {FIRST}-{FIRST + 9}: {OURS}")
    errors = number(row, "errors_above")
    return f"{errors:.1f} ± 1 ({row['above']})", errors + 1 >= 2


TARGETS = (
    Target(
        "recipes, a function of properties: best of 50 above BoTorch, in standard errors",
        ">= 2, within its standard error",
        above_peer,
    ),
)


def on_fractions(X: Tensor, Y: Tensor) -> gd.DistributionGP:
    """A GP on the fractions with BoTorch's default kernel."""
    return gd.DistributionGP(X, Y, get_covar_module_with_dim_scaled_prior(ard_num_dims=X.shape[-1]))


def outcome(function: Any, recipes: list[list[float]]) -> Outcome:
    """Return the best value of recipes."""
    return {"value": float(function(np.array(recipes)).max())}


def our_way(function: Any, evaluations: int, model: Any, seed: int) -> Outcome:
    """Search as the package does."""
    search = gd.RecipeSearch(PROPERTIES, MOST)
    optimizer = gd.ShapeOptimizer(search, model=model, initial=10, seed=seed)

    def value(recipe: dict[int, float]) -> float:
        return float(function(np.array([search.plain(recipe)]))[0])

    optimizer.run(value, evaluations, progress=False)
    return outcome(function, [e.candidate for e in optimizer.evaluations])


def at_random(function: Any, evaluations: int, seed: int) -> Outcome:
    """Take random recipes."""
    return outcome(function, gd.RecipeSearch(PROPERTIES, MOST).initial(evaluations, seed))


def cut(fractions: Tensor) -> Tensor:
    """Return recipes of the largest fractions, divided by their sum."""
    kept, places = fractions.clamp_min(0).topk(MOST, dim=-1)
    cut = torch.zeros_like(fractions).scatter(-1, places, kept)
    return cut / cut.sum(-1, keepdim=True)


def botorch_way(function: Any, evaluations: int, seed: int) -> Outcome:
    """Search with BoTorch on the fractions, from the same first recipes."""
    X = torch.tensor(gd.RecipeSearch(PROPERTIES, MOST).initial(10, seed), dtype=torch.float64)
    size = X.shape[-1]
    sums = [(torch.arange(size), torch.ones(size, dtype=torch.float64), 1.0)]
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).repeat(1, size)
    while len(X) < evaluations:
        Y = torch.from_numpy(function(X.numpy())).unsqueeze(-1)
        model = SingleTaskGP(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        torch.manual_seed(1000 * seed + len(X))
        found, _ = optimize_acqf(
            LogExpectedImprovement(model, best_f=Y.max()),
            bounds,
            q=1,
            num_restarts=4,
            raw_samples=256,
            equality_constraints=sums,
            options={"maxiter": 100},
        )
        X = torch.cat([X, cut(found)])
    return outcome(function, X.tolist())


def kept(name: str, way: Way, seed: int) -> Outcome:
    """Return what a search found and how long it took, from the file if it has been run before."""
    key = {"name": name, "seed": seed} | ({} if PEER in name else {"version": gd.__version__})
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    for known in map(json.loads, lines):
        if key.items() <= known.items():
            return dict(known)
    start = time.perf_counter()
    found = key | way(seed) | {"seconds": time.perf_counter() - start}
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")
    return found


def run(options: Options) -> list[Row]:
    """Search by each way."""
    count, evaluations = (2, 11) if options.quick else (10, 50)
    rows: list[Row] = []
    for task, function in FUNCTIONS.items():
        ways: dict[str, Way] = {
            PEER: partial(botorch_way, function, evaluations),
            RANDOM: partial(at_random, function, evaluations),
            KERNEL: partial(our_way, function, evaluations, on_fractions),
            OURS: partial(our_way, function, evaluations, None),
        }
        if not options.quick:
            ways = {name: partial(kept, f"{task}: {name}", way) for name, way in ways.items()}
        peer = np.zeros(count)
        for name, found, _ in searched(f"{task}: ", ways, range(FIRST, FIRST + count)):
            value = column(found, "value")
            peer = value if name.endswith(PEER) else peer
            gain = value - peer
            error = float(gain.std(ddof=1)) / count**0.5
            rows.append(
                {
                    "name": name,
                    "value": float(value.mean()),
                    "value_se": float(value.std(ddof=1)) / count**0.5,
                    "errors_above": float(gain.mean()) / error if error else None,
                    "above": f"{sum(gain > 0)} of {count}" if error else None,
                    "value_each": " ".join(f"{each:.2f}" for each in value),
                    "seconds": None if options.quick else float(column(found, "seconds").mean()),
                }
            )
    return rows


if __name__ == "__main__":
    main(run)
