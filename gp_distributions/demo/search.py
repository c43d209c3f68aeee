"""Search real airfoils for the best lift-to-drag ratio by Bayesian optimisation over their outlines."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from gpytorch.kernels import AdditiveKernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    MMDKernel,
    PointClouds,
    Pool,
    PoolSearch,
    ShapeOptimizer,
    SlicedWassersteinKernel,
)
from gp_distributions.datasets import Airfoils
from gp_distributions.plotting import plot_clouds, plot_traces

VERTICAL_SCALE = 2.0
INITIAL, EVALUATIONS = 10, 50


def kernel() -> AdditiveKernel:
    """Of the shape about its mean, and linear in the mean."""
    shape = SlicedWassersteinKernel(
        2, profile="matern52", center=True, num_slices=50, num_quantiles=64
    )
    return ScaleKernel(shape) + MMDKernel(2, kernel="linear", profile="linear")


def model_of_rows(X: Tensor, Y: Tensor) -> DistributionGP:
    """A model of what has been evaluated."""
    return DistributionGP(X, Y, kernel())


def scaled(clouds: PointClouds) -> PointClouds:
    """Clouds with the vertical axis scaled, as airfoils are thin."""
    return clouds.normalize(scale=[1.0, 1.0 / VERTICAL_SCALE])


def search(
    pool: Pool, targets: NDArray[np.float64], *, evaluations: int, seed: int, progress: bool = False
) -> list[int]:
    """The airfoils that a search evaluates, in order."""
    optimizer = ShapeOptimizer(PoolSearch(pool), model=model_of_rows, initial=INITIAL, seed=seed)
    optimizer.run(lambda index: float(targets[index]), evaluations, progress=progress)
    return [evaluation.candidate for evaluation in optimizer.evaluations]


def save_search_figures(airfoils: Airfoils, runs: list[list[int]], folder: Path) -> list[Path]:
    """The best ratio so far over evaluations, beside random search, and the best shapes of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = airfoils.lift_to_drag
    evaluations = len(runs[0])
    generator = np.random.default_rng(0)
    orders = [generator.permutation(len(targets))[:evaluations] for _ in range(len(runs))]
    figure, ax = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
    plot_traces(
        {"shapes": targets[np.array(runs)], "random": targets[np.array(orders)]},
        initial=INITIAL,
        optimum=float(targets.max()),
        label="lift-to-drag ratio",
        ax=ax,
    )
    ax.set_title(f"{len(targets)} airfoils", fontsize=10)
    traces = folder / "airfoils_search.png"
    figure.savefig(traces, dpi=120)

    best = sorted(runs[0], key=lambda index: -targets[index])[:8]
    ranks = {index: rank for rank, index in enumerate(np.argsort(-targets).tolist(), start=1)}
    figure, grid = plt.subplots(
        2, 4, figsize=(10.4, 2.6), sharex=True, sharey=True, layout="constrained"
    )
    plot_clouds(
        [airfoils.outlines[index] for index in best],
        titles=[
            f"{targets[index]:.0f}, rank {ranks[index]}, evaluation {runs[0].index(index) + 1}"
            for index in best
        ],
        axes=list(grid.flat),
    )
    figure.suptitle(f"The best of {evaluations} airfoils evaluated", fontsize=10)
    shapes = folder / "airfoils_best.png"
    figure.savefig(shapes, dpi=120)
    plt.close("all")
    return [traces, shapes]
