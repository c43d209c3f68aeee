"""Bayesian optimisation of the lift-to-drag ratio over the outlines of real airfoils."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gp_distributions import PoolSearch, ShapeOptimizer
from gp_distributions.bayesopt import Pool
from gp_distributions.datasets import Airfoils
from gp_distributions.demo.predictions import save
from gp_distributions.plotting import plot_clouds, plot_traces

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
    ax = plot_traces(
        {"shapes": targets[np.array(runs)], "random": targets[np.array(orders)]},
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
