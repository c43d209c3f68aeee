"""Does the metric that a model chooses without a kernel predict as well as its isotropic kernel?

The tasks are those of ``comparison``: outlines, bags of numbers, patients, molecules and images, none
of them with normals. On each, ``DistributionGP(X, y)`` is fitted to the training inputs; its isotropic
kernel is the first of its members. Mixed inputs have one kernel, without a choice. Seeds are 2000,
2001, ...; the choice was not developed on these tasks.

Columns: means over seeds of the mean log density of held-out targets, in nats, and of the coverage of
95% intervals, of the default (``density``, ``coverage``) and of its isotropic kernel (``isotropic``,
``isotropic_coverage``); ``gain``, the first density minus the second; ``mixtures``, the share of seeds
in which the mixture was chosen; ``seconds`` of a fit. The row ``all`` counts the tasks where ``gain`` is
not negative. Tasks whose data are not installed are left out.

    python -m benchmarks.prediction.default_tasks [--quick] [--seeds 3]
"""

from __future__ import annotations

import time

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import limit, number
from benchmarks.prediction.comparison import FROZEN_SEEDS, QUICK, TASKS, Task
from gp_distributions.metrics import NormalPredictions

SEEDS = 3

TARGETS = (
    limit(
        "default, ten tasks: share not below the isotropic kernel", ">= 0.9", "share", name="all"
    ),
    limit("default, ten tasks: least coverage of a task", ">= 0.85", "least_coverage", name="all"),
)


def score(task: Task) -> dict[str, float]:
    """Fit the default, and score it and its isotropic member on held-out targets."""
    X, y = task.X[task.train :], task.y[task.train :]
    model = gd.DistributionGP(task.X[: task.train], task.y[: task.train])
    start = time.perf_counter()
    gd.fit(model, progress=False)
    seconds = time.perf_counter() - start
    found: dict[str, float] = {}
    names = (("density", "coverage"), ("isotropic", "isotropic_coverage"))
    for part, (density, coverage) in zip((model, model.members[0]), names, strict=True):
        predictions = NormalPredictions.of(y, *part.predict(X))
        found[density] = predictions.log_density.mean().item()
        found[coverage] = predictions.scores()["coverage"]
    gain = found["density"] - found["isotropic"]
    mixtures = float(len(model.members) > 1)
    return found | {"gain": gain, "mixtures": mixtures, "seconds": seconds}


def run(options: Options) -> list[Row]:
    """Return a row for each task, and one that counts them."""
    rows: list[Row] = []
    for name, make in progress((QUICK if options.quick else TASKS).items()):
        try:
            tasks = [make(FROZEN_SEEDS + i) for i in range(options.seeds)]
        except ImportError:
            continue
        rows.append({"name": name, **means([score(task) for task in tasks])})
    kept = sum(number(row, "gain") >= 0 for row in rows)
    least = min(number(row, "coverage") for row in rows)
    summary: Row = {
        "name": "all",
        "tasks": len(rows),
        "not_below": kept,
        "share": kept / len(rows),
        "least_coverage": least,
    }
    return [*rows, summary]


if __name__ == "__main__":
    main(run)
