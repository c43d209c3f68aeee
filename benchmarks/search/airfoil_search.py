"""How many evaluations does a search need to find the airfoil with the best lift-to-drag ratio?

**Pool**: 10 random and 40 chosen evaluations among the 1874 airfoils of ``datasets.load_airfoils``.
The best ratio is 192.3, and the top hundredth are 19 airfoils. Our model reads 128 unordered points
of each outline. It is compared with random search and with a GP on 68 aligned ordinates, which
needs ordered outlines. All searches start from the same 10 airfoils and use Matern 5/2, ``fit`` and
log expected improvement.

The kernel of our model was selected from about 80 combinations of distance, profile, vertical scale
and reference on seeds 0 to 9, then frozen. It is the sum of Matern 5/2 of the sliced Wasserstein
distance between centred clouds and a kernel linear in the mean, with the vertical axis scaled by 2.
The reported seeds 1000 to 1009 were not used for any choice.

**Designs**: 10 random and 30 chosen evaluations of 10 CST (Kulfan) weights, 5 for the upper and 5
for the lower surface. The objective is the lift-to-drag ratio times smooth gates on NeuralFoil's
confidence (0.9) and on 9% thickness. Our model decodes a design to 64 outline points with their
unit normals, and compares these four-dimensional clouds by sliced Wasserstein with Matern 5/2:
without normals, clouds do not tell the upper from the lower surface. This representation was
selected by the error at 500 of 1500 random designs after training on 40 others. The lengthscale has
the prior of ``median_lengthscale_prior``. That prior, and the choice to start the maximisation of
acquisition functions around the best designs too, were selected on seeds 100 to 109. The reported
seeds are 0 to 9, which had been run once before this selection. The comparisons are random search
and two GPs on designs with one lengthscale per weight: Matern 5/2 without lengthscale priors, and
BoTorch's default, a Gaussian kernel with priors. All GPs start from the same 10 designs.

Columns: evaluations until the first of the top hundredth and until the best is found, means over
seeds, where a miss counts as the number of evaluations; the number of seeds that found it; the final
best value, mean and standard deviation over seeds.

    python -m benchmarks.search.airfoil_search [--quick]
"""

from __future__ import annotations

import operator
from functools import partial

from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, main
from benchmarks.judging import Target, beside
from benchmarks.search import searches
from benchmarks.search.designs import BOUNDS, gated_ratio

FIRST = 1000
_OURS = "pool, seeds 1000-1009: ours"
_DESIGNS = "design search, 10 + 30 evaluations: best value beside a"
TARGETS = (
    Target(
        "pool search, 10 + 40 evaluations: best airfoil found",
        "10 of 10",
        searches.count_of("best_found", 10, _OURS),
        asked=True,
    ),
    Target(
        "pool search: one of the top 1% within 20 evaluations",
        "10 of 10",
        searches.count_of("top_1pct_by_20", 10, _OURS),
        "Its page has the evaluations at which each seed finds its first. The kernel was frozen before "
        "these seeds were run, and stays.",
    ),
    *(
        beside(
            f"{_DESIGNS} {peer}",
            "not below it",
            "value",
            ("designs, seeds 0-9: ours", f"designs, seeds 0-9: {peer}"),
            operator.ge,
            spread="value_std",
            reason="Level within the spread over seeds. The model was chosen on other seeds, and "
            "stays.",
            asked=peer == "GP on designs",
        )
        for peer in ("GP on designs", "GP on designs with priors")
    ),
)


def at_random(evaluations: int, seed: int) -> searches.Outcome:
    """Evaluate uniform designs, because a Sobol sequence is not a random search."""
    uniform = Draws(seed).uniform(evaluations, BOUNDS.shape[-1])
    return {"value": max(map(gated_ratio, BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * uniform))}


def run(options: Options) -> list[Row]:
    """Search the pool by clouds, by ordinates and at random, then designs."""
    pool = searches.AirfoilPool(100, 12) if options.quick else searches.AirfoilPool(None, 50)
    seeds, few, evaluations = (options.seeds, 1, 11) if options.quick else (10, 10, 40)
    ways: dict[str, searches.Way] = {
        "ours": partial(pool.search, pool.clouds, searches.by_hand),
        "aligned ordinates": partial(pool.search, pool.ordinates, searches.matern),
        "random": partial(pool.search, pool.clouds, "random"),
    }
    rows = searches.pool_rows("pool, ", ways, range(FIRST, FIRST + seeds))
    ways = {
        name: partial(searches.design_search, model, transform, evaluations)
        for name, model, transform in (
            ("ours", searches.on_shapes, searches.DECODER),
            ("GP on designs", searches.on_designs, None),
            ("GP on designs with priors", searches.with_priors, None),
        )
    }
    ways["random"] = partial(at_random, evaluations)
    for name, found, seconds in searches.searched("designs, ", ways, range(few)):
        value = searches.column(found, "value")
        rows.append(
            {
                "name": name,
                "value": float(value.mean()),
                "value_std": float(value.std()),
                "value_least": float(value.min()),
                "seconds": seconds,
            }
        )
    return rows


if __name__ == "__main__":
    main(run)
