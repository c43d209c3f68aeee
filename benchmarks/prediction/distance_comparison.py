"""Which distance predicts real shapes best, at what cost, and how well does the default?

The task is to predict the lift-to-drag ratio of real airfoils from their outlines, with 200 training
shapes and all others as test shapes. All distances use the Matern 5/2 profile, a scaled kernel and a
fitted noise. Outlines are 128 unordered points at equal arc length. Gaussians are the means
and covariances of the outlines. Nothing is selected on test shapes.

Columns: ``r2`` and ``coverage`` (of 95% intervals) on test shapes are means over the seeds of
``--seeds``. ``gram_s`` is the time of the Gram matrix of the training shapes, ``fit_s`` of the fit
and ``predict_s`` of predicting all test shapes; all are medians. ``peak_mib`` is the peak memory of
fit and prediction.

Rows ``default`` are ``DistributionGP(X, y)`` without a kernel, for outlines with normals: 15 to 400 for
training and 700 others for testing, on splits ``default_rng(seed).permutation``, seeds 1000 and on, four
for each of ``--seeds``. ``re-meshed`` are the same test outlines with 30 to 200 vertices at random
places. ``nlpd`` is the negative log density in standardised units, and ``mixtures`` how often several
kernels were chosen.

    python -m benchmarks.prediction.distance_comparison [--quick] [--seeds 5]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, peak_memory, progress
from benchmarks.judging import Rows, Target, find, limits, number
from benchmarks.regression import Scores, fitted, score, score_of
from benchmarks.shapes import airfoil_clouds, remeshed, some_airfoils
from gp_distributions.distances import Distance

ALONE = True

Make = Callable[[gd.PointClouds], Distance]
FIRST, TEST = 1000, 700
# Numbers of training airfoils, with the R^2 and the negative log density asked of the default.
SIZES = {
    15: (0.58, 0.88),
    30: (0.75, 0.64),
    60: (0.85, 0.28),
    120: (0.885, 0.06),
    200: (0.905, -0.08),
    400: (0.935, -0.27),
}


def _remeshed(rows: Rows) -> tuple[str, bool]:
    ours, given = (number(find(rows, name=f"200: default{x}"), "r2") for x in (", re-meshed", ""))
    return f"{ours - given:+.3f}", ours - given >= -0.02


_COARSE = (
    "Outlines of 30 random vertices cut nose and trailing edge: those of fewer than 60 lose .1 to .28, "
    "those of 100 or more .02 or less. Smooth curves through the vertices win back .01 to .02 of the "
    "mean, and training on a random meshing of each outline, too, half of it; but intervals then hold "
    ".89 of re-meshed targets, where those of the default hold .95."
)
_ALL = f"{', '.join(map(str, SIZES))} airfoils, without a kernel"
TARGETS = (
    limits(f"{_ALL}: R²", {f"{n}: default": f">= {r2:g}" for n, (r2, _) in SIZES.items()}, "r2"),
    limits(
        f"{_ALL}: coverage",
        {f"{n}: default": f"{0.92 if n == 200 else 0.87} to 0.97" for n in SIZES},
        "coverage",
    ),
    limits(
        f"{_ALL}: negative log density",
        {f"{n}: default": f"<= {nlpd:g}" for n, (_, nlpd) in SIZES.items()},
        "nlpd",
    ),
    Target(
        "200 airfoils, without a kernel: R² on re-meshed test outlines, less that on the given ones",
        ">= -0.02",
        _remeshed,
        _COARSE,
    ),
)


def _reference(train: gd.PointClouds, **options: Any) -> gd.ReferenceMeasure:
    return gd.ReferenceMeasure.from_data(train, 20, **options)


# For each name, the form of the shapes, and the distance built from the training shapes.
DISTANCES: dict[str, tuple[str, Make]] = {
    "SW2": ("clouds", lambda train: gd.SlicedWasserstein(2)),
    "SW1": ("clouds", lambda train: gd.SlicedWasserstein(2, p=1)),
    "MMD gaussian": ("clouds", lambda train: gd.MMD(2)),
    "MMD laplace": ("clouds", lambda train: gd.MMD(2, kernel="laplace")),
    "Sinkhorn potential": ("clouds", lambda train: gd.SinkhornPotential(_reference(train))),
    "linear transport": (
        "clouds",
        lambda train: gd.LinearTransport(_reference(train, method="mean_shape")),
    ),
    "SW2 of Gaussians": ("gaussians", lambda train: gd.SlicedWasserstein(2, inputs="gaussians")),
    "MMD of Gaussians": ("gaussians", lambda train: gd.MMD(2, inputs="gaussians")),
}


def measured(distance: Distance, X: Tensor, y: Tensor, train: Tensor, test: Tensor) -> Scores:
    """Fit on the training shapes and predict the others."""
    distance.adapt(X[train])
    start = time.perf_counter()
    distance.squared(X[train])
    found = {"gram_s": time.perf_counter() - start}
    distance.clear_cache()

    def work() -> None:
        begin = time.perf_counter()
        model = fitted(distance, X[train], y[train])
        done = time.perf_counter()
        found.update(score(model, X[test], y[test]))
        found["fit_s"], found["predict_s"] = done - begin, time.perf_counter() - done

    peak = peak_memory(work)
    return found if peak is None else found | {"peak_mib": peak}


def defaults(options: Options) -> list[Row]:
    """Return the rows of models without a kernel."""
    foils = some_airfoils(40 if options.quick else None)
    clouds = gd.PointClouds.from_curves(foils.outlines, normals=True)
    found: dict[str, list[Scores]] = {}
    for size in [15] if options.quick else SIZES:
        seeds = range(FIRST, FIRST + 4 * options.seeds)
        for seed in progress(seeds, f"{size} airfoils"):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(clouds))
            train, test = order[:size], order[size : size + TEST]
            y, unit = foils.lift_to_drag, float(foils.lift_to_drag[train].std(ddof=1))
            start = time.perf_counter()
            model = gd.fit(gd.DistributionGP(clouds[train], y[train]), progress=False)
            seconds = time.perf_counter() - start
            inputs = {f"{size}: default": clouds[test]}
            if size == 200:
                meshes = [remeshed(foils.outlines[i], rng) for i in test]
                inputs[f"{size}: default, re-meshed"] = gd.PointClouds.from_curves(
                    meshes, normals=True
                )
            for name, X in inputs.items():
                mean, std = (values.numpy() / unit for values in model.predict(X))
                scores = score_of(y[test] / unit, mean, std)
                more = {"seconds": seconds, "mixtures": float(len(model.members) > 1)}
                found.setdefault(name, []).append(scores | more)
    rows: list[Row] = []
    for name, some in found.items():
        mean = means(some)
        columns = ("r2", "coverage", "nlpd", "seconds", "mixtures")
        rows.append({"name": name, **{column: mean[column] for column in columns}})
    return rows


def run(options: Options) -> list[Row]:
    """Return one row per distance, and those of the default."""
    count, atoms, train = (120, 32, 60) if options.quick else (None, 128, 200)
    _, clouds, targets = airfoil_clouds(count, atoms)
    inputs = {
        "clouds": clouds.pack(),
        "gaussians": gd.Gaussians.from_clouds(clouds).pack(),
    }
    splits = [
        torch.randperm(len(clouds), generator=torch.Generator().manual_seed(seed)).tensor_split(
            [train]
        )
        for seed in range(options.seeds)
    ]
    rows: list[Row] = []
    for name, (kind, make) in progress(DISTANCES.items()):
        found = [
            measured(make(clouds[known]), inputs[kind], targets, known, new)
            for known, new in splits
        ]
        medians = {
            key: statistics.median(one[key] for one in found)
            for key in ("gram_s", "fit_s", "predict_s")
        }
        mean, peaks = means(found), [one["peak_mib"] for one in found if "peak_mib" in one]
        rows.append(
            {
                "distance": name,
                "r2": mean["r2"],
                "coverage": mean["coverage"],
                **medians,
                "peak_mib": max(peaks, default=None),
            }
        )
    return rows + defaults(options)


if __name__ == "__main__":
    main(run)
