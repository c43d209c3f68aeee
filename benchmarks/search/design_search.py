"""Does a search of designs find a better wing when its model sees their shapes?

10 random and 30 chosen evaluations of 10 CST (Kulfan) weights, 5 for each surface. The objective is
NeuralFoil's ratio of lift to drag times smooth gates on its confidence (0.9) and on 9% thickness.

- ``shapes``: the default. A design is the outline that it decodes to, 64 points with their normals.
- ``parameters``: a GP on the weights with BoTorch's default kernel and priors.

Both start from the same 10 designs. Seeds 200 to 219 were run once. Columns: the best value, mean and
standard deviation over seeds; the mean difference to ``parameters``, paired by seed, with its standard
error; the seconds of a step.

    python -m benchmarks.search.design_search [--quick]
"""

from __future__ import annotations

import time

import numpy as np

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import Target
from benchmarks.search.designs import BOUNDS, decode, gated_ratio
from benchmarks.search.searches import level, paired, with_priors
from gp_distributions.bayesopt import Decoder, DesignSearch

LONG = True
INITIAL, FIRST = 10, 200


TARGETS = (
    Target(
        "design search, 10 + 30 evaluations: best value above that of a GP on the parameters",
        "at least minus a standard error",
        level("shapes", 1),
        asked=True,
    ),
)


def run(options: Options) -> list[Row]:
    """Search with both models from the same designs."""
    seeds, evaluations = (range(100, 101), 11) if options.quick else (range(FIRST, FIRST + 20), 40)
    ways = {
        "parameters": (DesignSearch(None, BOUNDS), with_priors),
        "shapes": (DesignSearch(Decoder(decode), BOUNDS), None),
    }
    rows: list[Row] = []
    found: dict[str, list[float]] = {}
    for name, (place, model) in ways.items():
        start, values = time.perf_counter(), found.setdefault(name, [])
        for seed in progress(seeds, name):
            optimizer = gd.ShapeOptimizer(place, model=model, initial=INITIAL, seed=seed)
            values.append(optimizer.run(gated_ratio, evaluations, progress=False).best[1])
        row: Row = {
            "name": name,
            "value": float(np.mean(values)),
            "value_std": float(np.std(values)),
        }
        row |= paired(values, found["parameters"])
        row["each"] = " ".join(f"{v:.0f}" for v in values)
        steps = len(seeds) * (evaluations - INITIAL)
        rows.append(row | {"seconds": (time.perf_counter() - start) / steps})
    return rows


if __name__ == "__main__":
    main(run)
