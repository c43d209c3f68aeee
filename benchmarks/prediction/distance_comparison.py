"""Which distance predicts real shapes best, and at what cost?

The task is to predict the lift-to-drag ratio of real airfoils from their outlines, with 200 training
shapes and all others as test shapes. All distances use the Matern 5/2 profile, a scaled kernel and a
fitted noise. Outlines are 128 unordered points at equal arc length. Hellinger and total variation
need a common support, so they count the points on a grid of 24 x 12 cells. Gaussians are the means
and covariances of the outlines. Nothing is selected on test shapes.

Columns: ``r2`` and ``coverage`` (of 95% intervals) on test shapes are means over the seeds of
``--seeds``. ``gram_s`` is the time of the Gram matrix of the training shapes, ``fit_s`` of the fit
and ``predict_s`` of predicting all test shapes; all are medians. ``peak_mib`` is the peak memory of
fit and prediction.

    python -m benchmarks.prediction.distance_comparison [--quick] [--seeds 5]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, peak_memory, progress
from benchmarks.regression import Scores, fitted, score
from benchmarks.shapes import airfoil_clouds
from gp_distributions.distances import Distance

ALONE = True

Make = Callable[[gd.PointClouds], Distance]
GRID = (24, 12)


def _reference(train: gd.PointClouds, **options: Any) -> gd.ReferenceMeasure:
    return gd.ReferenceMeasure.from_data(train, 20, **options)


# For each name, the form of the shapes, and the distance built from the training shapes.
DISTANCES: dict[str, tuple[str, Make]] = {
    "SW2": ("clouds", lambda train: gd.SlicedWasserstein(2)),
    "SW1": ("clouds", lambda train: gd.SlicedWasserstein(2, p=1)),
    "MMD gaussian": ("clouds", lambda train: gd.MMD(2)),
    "MMD gaussian, 500 features": ("clouds", lambda train: gd.MMD(2, num_features=500)),
    "MMD laplace": ("clouds", lambda train: gd.MMD(2, kernel="laplace")),
    "MMD energy": ("clouds", lambda train: gd.MMD(2, kernel="energy")),
    "Sinkhorn potential": ("clouds", lambda train: gd.SinkhornPotential(_reference(train))),
    "linear transport": (
        "clouds",
        lambda train: gd.LinearTransport(_reference(train, method="mean_shape")),
    ),
    "Fourier cauchy": ("clouds", lambda train: gd.Fourier(2, measure="cauchy")),
    "Hellinger": ("histograms", lambda train: gd.Hellinger(2)),
    "total variation": ("histograms", lambda train: gd.TotalVariation(2)),
    "SW2 of Gaussians": ("gaussians", lambda train: gd.SlicedWasserstein(2, inputs="gaussians")),
    "MMD of Gaussians": ("gaussians", lambda train: gd.MMD(2, inputs="gaussians")),
}


def histograms(clouds: gd.PointClouds) -> gd.PointClouds:
    """Counts on the cells of a common grid, as weights."""
    low = clouds.points.amin((0, 1))
    scale = torch.tensor(GRID) / (clouds.points.amax((0, 1)) - low)
    cells = ((clouds.points - low) * scale).long()
    cells = torch.minimum(cells, torch.tensor(GRID) - 1)
    index = cells[..., 0] * GRID[1] + cells[..., 1]
    counts = torch.zeros(len(clouds), GRID[0] * GRID[1], dtype=clouds.dtype)
    counts.scatter_add_(1, index, clouds.weights)
    grid = torch.cartesian_prod(*[torch.arange(n, dtype=clouds.dtype) for n in GRID])
    return gd.PointClouds(grid.expand(len(clouds), -1, -1), counts)


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


def run(options: Options) -> list[Row]:
    """Return one row per distance."""
    count, atoms, train = (120, 32, 60) if options.quick else (None, 128, 200)
    _, clouds, targets = airfoil_clouds(count, atoms)
    inputs = {
        "clouds": clouds.pack(),
        "histograms": histograms(clouds).pack(),
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
    return rows


if __name__ == "__main__":
    main(run)
