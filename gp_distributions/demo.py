"""Predict the lift-to-drag ratio of real airfoils from their outlines, with intervals.

Run as ``python -m gp_distributions.demo``; ``--help`` lists the options. It needs the extras
``airfoils`` and ``plot``, and no network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from gp_distributions import DistributionGP, PointClouds, fit
from gp_distributions.datasets import Airfoils, load_airfoils

ATOMS = 128


@dataclass(frozen=True)
class Split:
    """What one split into training and test airfoils gave."""

    test: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    r2: float
    rmse: float
    coverage: float
    fit_seconds: float
    predict_seconds: float


def run_split(clouds: PointClouds, targets: NDArray[np.float64], indices: Sequence[Any]) -> Split:
    """Train on some clouds, predict the others."""
    train, test = indices
    start = time.perf_counter()
    model = fit(DistributionGP(clouds[train], targets[train]))
    fitted = time.perf_counter()
    mean, std = (values.numpy() for values in model.predict(clouds[test]))
    done = time.perf_counter()
    error = targets[test] - mean
    return Split(
        test=test,
        mean=mean,
        std=std,
        r2=1
        - float(np.square(error).sum() / np.square(targets[test] - targets[test].mean()).sum()),
        rmse=float(np.sqrt(np.square(error).mean())),
        coverage=float((np.abs(error) <= 1.959964 * std).mean()),
        fit_seconds=fitted - start,
        predict_seconds=done - fitted,
    )


def save_figures(airfoils: Airfoils, split: Split, folder: Path) -> list[Path]:
    """Predicted against true values, and a gallery of shapes with their predictions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from gp_distributions.plotting import plot_clouds, plot_predictions

    folder.mkdir(parents=True, exist_ok=True)
    truth = airfoils.lift_to_drag[split.test]
    figure, ax = plt.subplots(figsize=(5.2, 5.2), layout="constrained")
    plot_predictions(truth, split.mean, split.std, label="lift-to-drag ratio", ax=ax)
    ax.set_title(f"{len(truth)} airfoils not seen in training, $R^2$ = {split.r2:.3f}")
    predictions = folder / "airfoils_predictions.png"
    figure.savefig(predictions, dpi=120)

    # From the lowest to the highest prediction, evenly.
    shown = np.argsort(split.mean)[np.linspace(0, len(truth) - 1, 20).astype(int)]
    figure, grid = plt.subplots(
        4, 5, figsize=(13, 4.6), sharex=True, sharey=True, layout="constrained"
    )
    plot_clouds(
        [airfoils.outlines[split.test[i]] for i in shown],
        titles=[
            f"{split.mean[i]:.0f} ± {1.959964 * split.std[i]:.0f}  (true {truth[i]:.0f})"
            for i in shown
        ],
        axes=list(grid.flat),
    )
    figure.suptitle("Lift-to-drag ratio: prediction ± 95% interval (true value)", fontsize=10)
    gallery = folder / "airfoils_gallery.png"
    figure.savefig(gallery, dpi=120)
    plt.close("all")
    return [predictions, gallery]


def main(arguments: Sequence[str] | None = None) -> list[Split]:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m gp_distributions.demo", description=__doc__)
    parser.add_argument("--train", type=int, default=200, help="training airfoils (default: 200)")
    parser.add_argument("--splits", type=int, default=5, help="random splits (default: 5)")
    parser.add_argument("--folder", type=Path, default=Path("figures"), help="where figures go")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    airfoils = load_airfoils(progress=not options.quiet)
    clouds = PointClouds.from_curves(airfoils.outlines, atoms=ATOMS)
    print(f"{clouds} read in {time.perf_counter() - start:.1f} s")
    print(
        f"target: lift-to-drag ratio at 4 degrees and Re 1e6, {options.train} airfoils to train on\n"
    )

    splits = []
    print("split     R^2    RMSE  coverage of 95% intervals    fit  predict")
    for seed in tqdm(range(options.splits), desc="splits", disable=options.quiet, leave=False):
        indices = airfoils.split(options.train, seed=seed)
        split = run_split(clouds, airfoils.lift_to_drag, indices)
        splits.append(split)
        tqdm.write(
            f"{seed:5d}  {split.r2:6.3f}  {split.rmse:6.2f}  {split.coverage:25.3f}  "
            f"{split.fit_seconds:3.1f} s    {split.predict_seconds:3.1f} s"
        )
    means = [float(np.mean([getattr(s, f) for s in splits])) for f in ("r2", "rmse", "coverage")]
    print(f" mean  {means[0]:6.3f}  {means[1]:6.2f}  {means[2]:25.3f}\n")
    for path in save_figures(airfoils, splits[0], options.folder):
        print(f"saved {path}")
    print(f"done in {time.perf_counter() - start:.1f} s")
    return splits


if __name__ == "__main__":
    main()
