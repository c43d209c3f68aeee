"""Real airfoils: their lift-to-drag ratios predicted from outlines, and the best of them searched for.

Run as ``python -m gp_distributions.demo``; ``--help`` lists the options. It needs the extras
``airfoils`` and ``plot``, and no network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from tqdm import tqdm

from gp_distributions import PointClouds, Pool
from gp_distributions.datasets import load_airfoils
from gp_distributions.demo.predictions import Split, run_split, save_figures
from gp_distributions.demo.search import EVALUATIONS, save_search_figures, scaled, search

ATOMS = 128


def main(arguments: Sequence[str] | None = None) -> tuple[list[Split], list[list[int]]]:
    """Predict, then search.

    Returns:
        What each split gave, and the airfoils that each search evaluated, in order.
    """
    parser = argparse.ArgumentParser(prog="python -m gp_distributions.demo", description=__doc__)
    parser.add_argument("--train", type=int, default=200, help="training airfoils (default: 200)")
    parser.add_argument("--splits", type=int, default=5, help="random splits (default: 5)")
    parser.add_argument("--searches", type=int, default=3, help="searches (default: 3)")
    parser.add_argument(
        "--evaluations", type=int, default=EVALUATIONS, help="of each (default: %(default)s)"
    )
    parser.add_argument("--folder", type=Path, default=Path("figures"), help="where figures go")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)

    matplotlib.use("Agg")
    start = time.perf_counter()
    airfoils = load_airfoils(progress=not options.quiet)
    targets = airfoils.lift_to_drag
    clouds = PointClouds.from_curves(airfoils.outlines, atoms=ATOMS)
    print(f"{clouds} read in {time.perf_counter() - start:.1f} s")
    print(
        f"target: lift-to-drag ratio at 4 degrees and Re 1e6, {options.train} airfoils to train on\n"
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

    runs: list[list[int]] = []
    print(f"search   best  of all  at evaluation   ({options.evaluations} of each)")
    pool = Pool(scaled(clouds))
    for seed in range(options.searches):
        bar = not options.quiet
        run = search(pool, targets, evaluations=options.evaluations, seed=seed, progress=bar)
        runs.append(run)
        best = targets[run].argmax()
        print(f"{seed:6d}  {targets[run][best]:5.1f}  {targets.max():6.1f}  {best + 1:13d}")
    saved += save_search_figures(airfoils, runs, options.folder)

    print()
    for path in saved:
        print(f"saved {path}")
    print(f"done in {time.perf_counter() - start:.1f} s")
    return splits, runs
