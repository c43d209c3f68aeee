"""Predict the lift-to-drag ratios of real airfoils from their outlines, and search for the best airfoil.

Run ``python -m gp_distributions.demo``; ``--help`` lists the options. It requires the extras
``airfoils`` and ``plot``, but no network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from tqdm import tqdm

from gp_distributions import PointClouds
from gp_distributions.bayesopt import Pool
from gp_distributions.datasets import load_airfoils
from gp_distributions.demo.tasks import (
    EVALUATIONS,
    Split,
    run_split,
    save_figures,
    save_search_figures,
    search,
)

ATOMS = 128


def main(arguments: Sequence[str] | None = None) -> tuple[list[Split], list[list[int]]]:
    """Run the demo: predict lift-to-drag ratios, then search for the best airfoil.

    Args:
        arguments: Command-line arguments. Default: the arguments of the process.

    Returns:
        The results of each split, and for each search the indices of the airfoils that it evaluated, in
        order.
    """
    parser = argparse.ArgumentParser(prog="python -m gp_distributions.demo", description=__doc__)
    for name, default, counted in (
        ("train", 200, "training airfoils"),
        ("splits", 3, "random splits"),
        ("searches", 1, "searches"),
        ("evaluations", EVALUATIONS, "evaluations in each search"),
    ):
        described = f"number of {counted} (default: {default})"
        parser.add_argument(f"--{name}", type=int, default=default, help=described)
    parser.add_argument("--folder", type=Path, default=Path("figures"), help="folder for figures")
    parser.add_argument("--quiet", action="store_true", help="hide progress bars")
    options = parser.parse_args(arguments)

    matplotlib.use("Agg")
    start = time.perf_counter()
    airfoils = load_airfoils(progress=not options.quiet)
    targets = airfoils.lift_to_drag
    clouds = PointClouds.from_curves(airfoils.outlines, atoms=ATOMS, normals=True)
    print(f"{clouds} read in {time.perf_counter() - start:.1f} s")
    print(
        f"target: lift-to-drag ratio at 4 degrees and Re 1e6, {options.train} training airfoils\n"
    )

    splits = []
    print("split     R^2    RMSE  coverage of 95% intervals    fit  predict")
    for seed in tqdm(range(options.splits), desc="splits", disable=options.quiet, leave=False):
        split = run_split(clouds, targets, airfoils.split(options.train, seed=seed))
        splits.append(split)
        tqdm.write(
            f"{seed:5d}  {split.r2:6.3f}  {split.rmse:6.2f}  {split.coverage:25.3f}  "
            f"{split.fit_seconds:3.1f} s    {split.predict_seconds:3.1f} s"
        )
    means = [float(np.mean([getattr(s, f) for s in splits])) for f in ("r2", "rmse", "coverage")]
    print(f" mean  {means[0]:6.3f}  {means[1]:6.2f}  {means[2]:25.3f}\n")
    saved = save_figures(airfoils, splits[0], options.folder)

    runs = []
    print(f"search   best  of all  at evaluation   ({options.evaluations} of each)")
    pool = Pool(clouds)
    count, bar = options.evaluations, not options.quiet
    for seed in range(options.searches):
        run = search(pool, targets, evaluations=count, seed=seed, progress=bar)
        runs.append(run)
        best = targets[run].argmax()
        print(f"{seed:6d}  {targets[run][best]:5.1f}  {targets.max():6.1f}  {best + 1:13d}")
    saved += save_search_figures(airfoils, runs, options.folder)

    print("", *(f"saved {path}" for path in saved), sep="\n")
    print(f"done in {time.perf_counter() - start:.1f} s")
    return splits, runs
