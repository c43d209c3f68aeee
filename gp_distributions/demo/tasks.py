"""The two tasks of the demo, predictions and searches, with their figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from gp_distributions import DistributionGP, PointClouds, PoolSearch, ShapeOptimizer, fit
from gp_distributions.bayesopt import Pool
from gp_distributions.datasets import Airfoils
from gp_distributions.metrics.intervals import calibration
from gp_distributions.plotting import plot_clouds, plot_predictions, plot_traces


@dataclass(frozen=True)
class Split:
    """Predictions, scores and run times for one split into training and test airfoils."""

    test: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    r2: float
    rmse: float
    coverage: float
    fit_seconds: float
    predict_seconds: float


def run_split(clouds: PointClouds, targets: NDArray[np.float64], indices: Sequence[Any]) -> Split:
    """Fit a model to the training clouds and predict the test clouds; ``indices`` lists both."""
    train, test = indices
    start = time.perf_counter()
    model = fit(DistributionGP(clouds[train], targets[train]), progress=False)
    fitted = time.perf_counter()
    mean, std = (values.numpy() for values in model.predict(clouds[test]))
    done = time.perf_counter()
    scores = calibration(targets[test], mean, std)
    return Split(
        test=test,
        mean=mean,
        std=std,
        r2=r2_score(targets[test], mean),
        rmse=scores.rmse.item(),
        coverage=scores.coverage.item(),
        fit_seconds=fitted - start,
        predict_seconds=done - fitted,
    )


def save_figures(airfoils: Airfoils, split: Split, folder: Path) -> list[Path]:
    """Save the predictions against the true values, and a gallery of shapes with predictions."""
    truth = airfoils.lift_to_drag[split.test]
    ax = plot_predictions(truth, split.mean, split.std, label="lift-to-drag ratio")
    title = f"{len(truth)} airfoils not seen in training, $R^2$ = {split.r2:.3f}"
    predictions = save(ax, folder / "airfoils_predictions.png", title=title)

    # The gallery shows 20 airfoils, evenly spaced from the lowest to the highest prediction.
    shown = np.argsort(split.mean)[np.linspace(0, len(truth) - 1, 20).astype(int)]
    titles = [
        f"{split.mean[i]:.0f} ± {1.959964 * split.std[i]:.0f}  (true {truth[i]:.0f})" for i in shown
    ]
    outlines = [airfoils.outlines[split.test[i]] for i in shown]
    ax, *_ = plot_clouds(outlines, titles=titles, columns=5)
    title = "Lift-to-drag ratio: prediction ± 95% interval (true value)"
    return [predictions, save(ax, folder / "airfoils_gallery.png", title=title)]


def save(ax: Axes, path: Path, *, title: str) -> Path:
    """Add a title to the figure that contains the axes, save the figure and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


# Evaluations at random, and in all, of a search; and the number of random searches beside it.
INITIAL, EVALUATIONS, RANDOM = 10, 40, 20


def search(
    pool: Pool, targets: NDArray[np.float64], *, evaluations: int, seed: int, progress: bool = False
) -> list[int]:
    """Search for the best airfoil, and return the indices of the evaluated airfoils in order."""
    optimizer = ShapeOptimizer(PoolSearch(pool), initial=INITIAL, seed=seed)
    optimizer.run(lambda index: float(targets[index]), evaluations, progress=progress)
    return [evaluation.candidate for evaluation in optimizer.evaluations]


def save_search_figures(airfoils: Airfoils, runs: list[list[int]], folder: Path) -> list[Path]:
    """Save the traces of the searches and of random search, and the best shapes of one run."""
    targets = airfoils.lift_to_drag
    evaluations = len(runs[0])
    generator = np.random.default_rng(0)
    orders = [generator.permutation(len(targets))[:evaluations] for _ in range(RANDOM)]
    name = "shapes" if len(runs) > 1 else "shapes (one run)"
    ax = plot_traces(
        {name: targets[np.array(runs)], "random": targets[np.array(orders)]},
        initial=INITIAL,
        optimum=float(targets.max()),
        label="lift-to-drag ratio",
    )
    traces = save(ax, folder / "airfoils_search.png", title=f"{len(targets)} airfoils")

    best = sorted(runs[0], key=lambda index: -targets[index])[:8]
    ranks = {index: rank for rank, index in enumerate(np.argsort(-targets).tolist(), start=1)}
    titles = [
        f"{targets[index]:.0f}, rank {ranks[index]}, evaluation {runs[0].index(index) + 1}"
        for index in best
    ]
    ax, *_ = plot_clouds([airfoils.outlines[index] for index in best], titles=titles)
    title = f"The best of {evaluations} evaluated airfoils"
    return [traces, save(ax, folder / "airfoils_best.png", title=title)]
