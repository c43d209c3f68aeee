"""Which distance predicts what propeller blades do, and what do engineers use instead?

500 blades of ``datasets.random_blades(500, seed=5000)`` in one pose, each meshed anew, as 1,000 points
of the surface with normals; 200 train and the others test, in each of three splits. The targets are the
losses ``log((1 - efficiency) / efficiency)`` and ``log(thrust)``. Seeds below 2000 were used while the
package was built.

- ``default``: no kernel is given; it chooses among an isotropic kernel and a mixture.
- The others of ours have one lengthscale, Matern 5/2 and one of the distances of ``default_kernels``,
  all with normals: ``rigid`` does not see the pose; ``sw2, positions`` does not see the normals.
- ``principal``: BoTorch's GP on 30 principal coordinates of 12 sections at corresponding places, which
  no other method sees; ``sections``: gradient boosting on the chord, angle, thickness, area and place of
  each section; ``PointNet``: five small networks of points and normals (mean pooling), averaged.

Columns, means over splits: R^2, coverage of 95% intervals and negative log density in standard units.
Of peers without intervals, they are as in the league.

    python -m benchmarks.prediction.blades [--quick]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import ShuffleSplit

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import limit
from benchmarks.league.networks import deep_sets
from benchmarks.league.ours import default
from benchmarks.league.scores import Fold, Prediction, normal, scored
from benchmarks.league.sets import Array, Task, sections
from benchmarks.league.tables import predicted, principal, search
from gp_distributions.datasets import random_blades
from gp_distributions.kernels import default_kernels

LONG = True
SEED, SPLITS = 5000, 3
_RARE = (
    "Perhaps rare blades of nearly no thrust: on another seed, 2 of 600 lie nine standard deviations "
    "below the mean logarithm, and without them R² rises by .07."
)
TARGETS = (
    *(
        limit(
            f"blades, without a kernel: R² of {what}",
            target,
            f"{what}_r2",
            name="default",
            reason=_RARE,
        )
        for what, target in (("thrust", ">= 0.92"), ("losses", ">= 0.58"))
    ),
    *(
        limit(
            f"blades, without a kernel: coverage of {what}",
            "0.92 to 0.97",
            f"{what}_coverage",
            name="default",
        )
        for what in ("thrust", "losses")
    ),
)
Method = Callable[[Fold], Prediction]


def with_distance(name: str) -> Method:
    """Return the method of a kernel with one of the default distances."""

    def method(fold: Fold) -> Prediction:
        X, new = fold.train.clouds, fold.test.clouds
        kernels = default_kernels(X)
        model = gd.DistributionGP(X, fold.y, kernels[f"{name} matern52"])
        mean, std = gd.fit(model, progress=False).predict(new)
        return normal(mean.numpy(), std.numpy())

    return method


def positions(fold: Fold) -> Prediction:
    """The isotropic default without normals."""
    train, test = (
        Task(gd.PointClouds(part.clouds.positions, part.clouds.weights), part.y)
        for part in (fold.train, fold.test)
    )
    return with_distance("sw2")(Fold(train, test, fold.seed))


def measures(aligned: Array) -> Array:
    """Return chords, angles, thicknesses, areas and middles of 12 sections: ``N x 72``."""
    x, y = np.moveaxis(aligned.reshape(-1, 2, 64, 12), 1, 0)
    chord = np.hypot(x[:, 32] - x[:, 0], y[:, 32] - y[:, 0])
    angle = np.arctan2(y[:, 32] - y[:, 0], x[:, 32] - x[:, 0])
    across = (y - y[:, :1]) * np.cos(angle)[:, None] - (x - x[:, :1]) * np.sin(angle)[:, None]
    area = np.abs((x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(1)) / 2
    return np.hstack([chord, angle, np.ptp(across, axis=1), area, x.mean(1), y.mean(1)])


def boosted_sections(fold: Fold) -> Prediction:
    """Gradient boosting on measures of the sections, over the four settings of the league."""
    assert fold.train.aligned is not None
    assert fold.test.aligned is not None
    X, new = measures(fold.train.aligned), measures(fold.test.aligned)
    made = HistGradientBoostingRegressor(max_iter=100, min_samples_leaf=5, random_state=fold.seed)
    grid: dict[str, list[Any]] = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [4, 16]}
    return predicted(search(made, grid, X, fold).best_estimator_, X, new, fold)


METHODS: dict[str, Method] = {
    "default": default,
    **{
        name: with_distance(name) for name in ("sw2", "sw1", "centred", "mmd", "transport", "rigid")
    },
    "sw2, positions": positions,
    "principal": principal,
    "sections": boosted_sections,
    "PointNet": deep_sets,
}


def run(options: Options) -> list[Row]:
    """Return one row per method."""
    number, train, splits = (16, 10, 1) if options.quick else (500, 200, SPLITS)
    drawn = random_blades(number, seed=SEED, meshing_seed=SEED)
    atoms = 100 if options.quick else 1000
    surfaces = gd.PointClouds.from_meshes(drawn.meshes, atoms=atoms, normals=True)
    aligned = np.stack([sections(vertices) for vertices, _ in drawn.meshes])
    targets = {
        "losses": np.log((1 - drawn.efficiency) / drawn.efficiency),
        "thrust": np.log(drawn.thrust),
    }
    methods = ("sw2", "sections") if options.quick else METHODS
    parts = list(ShuffleSplit(splits, train_size=train, random_state=SEED).split(aligned))
    rows: list[Row] = []
    for method in progress(list(methods), "blades"):
        row: Row = {"name": method}
        start = time.perf_counter()
        for target, y in targets.items():
            task, found = Task(surfaces, y, aligned), []
            for seed, (some, others) in enumerate(parts):
                fold = Fold(task[some], task[others], seed)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of convergence, in peers
                    found.append(scored(METHODS[method](fold), fold, float(y.std())))
            for column, score in (("r2", "skill"), ("coverage", "coverage"), ("nlpd", "loss")):
                row[f"{target}_{column}"] = float(np.mean([each[score] for each in found]))
        seconds = time.perf_counter() - start
        rows.append(row | {"seconds": None if options.quick else seconds / len(parts) / 2})
    return rows


if __name__ == "__main__":
    main(run)
