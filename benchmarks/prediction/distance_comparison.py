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
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from sklearn.metrics import r2_score
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness import Options, Row, main, peak_memory
from gp_distributions import (
    MMD,
    DistributionGP,
    DistributionKernel,
    Fourier,
    Gaussians,
    Hellinger,
    LinearTransport,
    PointClouds,
    ReferenceMeasure,
    SinkhornPotential,
    SlicedWasserstein,
    TotalVariation,
    fit,
)
from gp_distributions.calibration import calibration
from gp_distributions.datasets import load_airfoils
from gp_distributions.distances import Distance

ALONE = True

Make = Callable[[PointClouds], Distance]
GRID = (24, 12)


def _reference(train: PointClouds, **options: Any) -> ReferenceMeasure:
    return ReferenceMeasure.from_data(train, 20, **options)


# For each name, the form of the shapes, and the distance built from the training shapes.
DISTANCES: dict[str, tuple[str, Make]] = {
    "SW2": ("clouds", lambda train: SlicedWasserstein(2)),
    "SW1": ("clouds", lambda train: SlicedWasserstein(2, p=1)),
    "MMD gaussian": ("clouds", lambda train: MMD(2)),
    "MMD gaussian, 500 features": ("clouds", lambda train: MMD(2, num_features=500)),
    "MMD laplace": ("clouds", lambda train: MMD(2, kernel="laplace")),
    "MMD energy": ("clouds", lambda train: MMD(2, kernel="energy")),
    "Sinkhorn potential": ("clouds", lambda train: SinkhornPotential(_reference(train))),
    "linear transport": (
        "clouds",
        lambda train: LinearTransport(_reference(train, method="mean_shape")),
    ),
    "Fourier cauchy": ("clouds", lambda train: Fourier(2, measure="cauchy")),
    "Hellinger": ("histograms", lambda train: Hellinger(2)),
    "total variation": ("histograms", lambda train: TotalVariation(2)),
    "SW2 of Gaussians": ("gaussians", lambda train: SlicedWasserstein(2, inputs="gaussians")),
    "MMD of Gaussians": ("gaussians", lambda train: MMD(2, inputs="gaussians")),
}


@dataclass(frozen=True)
class Score:
    """Results of one distance on one split."""

    r2: float
    coverage: float
    gram: float
    fit: float
    predict: float
    peak: float | None


def histograms(clouds: PointClouds) -> PointClouds:
    """Counts on the cells of a common grid, as weights."""
    low = clouds.points.amin((0, 1))
    scale = torch.tensor(GRID) / (clouds.points.amax((0, 1)) - low)
    cells = ((clouds.points - low) * scale).long()
    cells = torch.minimum(cells, torch.tensor(GRID) - 1)
    index = cells[..., 0] * GRID[1] + cells[..., 1]
    counts = torch.zeros(len(clouds), GRID[0] * GRID[1], dtype=clouds.dtype)
    counts.scatter_add_(1, index, clouds.weights)
    grid = torch.cartesian_prod(*[torch.arange(n, dtype=clouds.dtype) for n in GRID])
    return PointClouds(grid.expand(len(clouds), -1, -1), counts)


def score(
    make: Make, X: Tensor, y: Tensor, split: tuple[Tensor, Tensor], clouds: PointClouds
) -> Score:
    """Fit on the training shapes and predict the others."""
    train, test = split
    distance = make(clouds[train])
    distance.adapt(X[train])
    start = time.perf_counter()
    distance.squared(X[train])
    gram = time.perf_counter() - start
    distance.clear_cache()
    found: list[Score] = []

    def work() -> None:
        begin = time.perf_counter()
        kernel = ScaleKernel(DistributionKernel(distance, "matern52"))
        model = fit(DistributionGP(X[train], y[train], kernel))
        fitted = time.perf_counter()
        mean, std = model.predict(X[test])
        done = time.perf_counter()
        r2, covered = r2_score(y[test], mean), calibration(y[test], mean, std).coverage.item()
        found.append(Score(r2, covered, gram, fitted - begin, done - fitted, None))

    peak = peak_memory(work)
    return Score(**{**vars(found[0]), "peak": peak})


def run(options: Options) -> list[Row]:
    """Return one row per distance."""
    foils = load_airfoils()
    outlines = foils.outlines[:120] if options.quick else foils.outlines
    clouds = PointClouds.from_curves(outlines, atoms=32 if options.quick else 128)
    targets = torch.from_numpy(foils.lift_to_drag)[: len(clouds)]
    inputs = {
        "clouds": clouds.pack(),
        "histograms": histograms(clouds).pack(),
        "gaussians": Gaussians.from_clouds(clouds).pack(),
    }
    splits = []
    for seed in range(options.seeds):
        order = torch.randperm(len(clouds), generator=torch.Generator().manual_seed(seed))
        count = 60 if options.quick else 200
        splits.append((order[:count], order[count:]))
    rows: list[Row] = []
    for name, (kind, make) in tqdm(DISTANCES.items(), leave=False, disable=None):
        scores = [score(make, inputs[kind], targets, split, clouds) for split in splits]
        peaks = [one.peak for one in scores if one.peak is not None]
        rows.append(
            {
                "distance": name,
                "r2": statistics.mean(one.r2 for one in scores),
                "coverage": statistics.mean(one.coverage for one in scores),
                "gram_s": statistics.median(one.gram for one in scores),
                "fit_s": statistics.median(one.fit for one in scores),
                "predict_s": statistics.median(one.predict for one in scores),
                "peak_mib": max(peaks) if peaks else None,
            }
        )
    return rows


if __name__ == "__main__":
    main(run)
