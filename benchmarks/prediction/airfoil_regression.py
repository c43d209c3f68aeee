r"""How well is lift to drag predicted from outlines, and from outlines with other meshes?

The targets are the lift-to-drag ratios of real airfoils, with 200 airfoils for training and all
others for testing, on the splits 0, 1, ... of ``Airfoils.split``. The profile is Matern 5/2 unless
stated otherwise, and hyperparameters maximise the marginal likelihood.
``distance_comparison`` compares all distances.

- ``outlines``: 128 unordered points at equal arc length, with three distances.
- ``68 ordinates``: 34 heights of each surface, which needs ordered outlines. The models are GPs with
  one lengthscale and with one per ordinate (``ard``), and a random forest of 500 trees.
- ``re-meshed``: models with the SW2 distance predict test outlines with other meshes, of 30 to 200
  vertices. The vertices lie at arc lengths of density proportional to
  :math:`\exp(\alpha \sin(2 \pi s + \phi) + \beta \sin(4 \pi s + \psi))`, with random phases and
  normal :math:`\alpha, \beta` of standard deviation 1/2. The clouds have uniform weights, weights by
  the arc length that each vertex represents (``PointClouds.from_curves``), or 128 points at equal arc
  length (``PointClouds.from_curves(atoms=128)``). ``normalised`` clouds are centred and scaled by the
  training shapes (``PointClouds.normalize``), which emphasises the vertical axis.

Columns: ``r2`` and ``coverage`` of 95% intervals on test shapes are means over splits, and ``lowest``
is the smallest ``r2``. ``seconds`` is the time of fit and prediction on one split.

    python -m benchmarks.prediction.airfoil_regression [--quick] [--seeds 5]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from torch import Tensor

import gp_distributions as gd
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.prediction.distance_comparison import DISTANCES
from benchmarks.regression import Scores, kernel_of, score_of
from benchmarks.search.searches import matern
from benchmarks.shapes import Outline, airfoil_clouds, ordinates

VERTICES = (30, 200)


@dataclass(frozen=True)
class Split:
    """All shapes in three forms, with the indices of training and test shapes."""

    outlines: tuple[Outline, ...]
    clouds: gd.PointClouds
    heights: Tensor
    targets: Tensor
    train: Tensor
    test: Tensor

    def score(self, predict: Callable[[], tuple[Tensor, Tensor]]) -> Scores:
        """Accuracy and coverage on the test shapes."""
        begin = time.perf_counter()
        mean, std = predict()
        seconds = time.perf_counter() - begin
        return score_of(self.targets[self.test], mean, std) | {"seconds": seconds}


def remeshed(outline: Outline, rng: np.random.Generator) -> Outline:
    """Resample an outline at a random number of vertices with random density."""
    grid = np.linspace(0, 1, 2001)
    slow, fast = (
        0.5 * rng.standard_normal() * np.sin(2 * np.pi * (k * grid + rng.uniform())) for k in (1, 2)
    )
    share = np.concatenate([[0], np.cumsum(np.exp(slow + fast)[1:])])
    count = int(rng.integers(*VERTICES, endpoint=True))
    places = np.interp((np.arange(count) + rng.uniform()) / count, share / share[-1], grid)
    closed = np.concatenate([outline, outline[:1]])
    ends = np.concatenate([[0], np.linalg.norm(np.diff(closed, axis=0), axis=1).cumsum()])
    return np.stack([np.interp(places * ends[-1], ends, axis) for axis in closed.T], axis=-1)


def fit_predict(model: gd.DistributionGP, X: gd.PointClouds | Tensor) -> tuple[Tensor, Tensor]:
    """Fit a model, and return predicted means and standard deviations."""
    return gd.fit(model).predict(X)


def by_outlines(split: Split, seed: int) -> dict[str, Scores]:
    """Compare three distances, and test the first one on other meshes."""
    rng = np.random.default_rng(seed)
    outlines = [remeshed(split.outlines[i], rng) for i in split.test.tolist()]
    meshes = {
        "uniform weights": gd.PointClouds.from_list(outlines),
        "arc-length weights": gd.PointClouds.from_curves(outlines),
        "resampled": gd.PointClouds.from_curves(outlines, atoms=split.clouds.points.shape[-2]),
    }
    found = {}
    for name, profile, normalised in (
        *itertools.product(["SW2"], ["matern52", "gaussian"], [False, True]),
        ("MMD laplace", "matern52", False),
        ("linear transport", "matern52", False),
    ):
        known, new = split.clouds[split.train], split.clouds[split.test]
        read = meshes if name == "SW2" else {}
        label = name if profile == "matern52" else f"{name} {profile}"
        if normalised:
            label = f"{label} normalised"
            read = {way: clouds.normalize(like=known) for way, clouds in meshes.items()}
            known, new = known.normalize(), new.normalize(like=known)
        kernel = kernel_of(DISTANCES[name][1](known), profile)
        model = gd.DistributionGP(known, split.targets[split.train], kernel)
        found[f"outlines: {label}"] = split.score(partial(fit_predict, model, new))
        for way, clouds in read.items():
            found[f"re-meshed: {label}, {way}"] = split.score(partial(model.predict, clouds))
    return found


def by_ordinates(split: Split, seed: int, trees: int) -> dict[str, Scores]:
    """Compare two GPs and a random forest on aligned heights."""
    known, new = split.heights[split.train], split.heights[split.test]
    targets, truth = split.targets[split.train], split.targets[split.test]
    found = {
        f"68 ordinates: GP{', ard' * ard}": split.score(
            partial(fit_predict, matern(known, targets, ard=ard), new)
        )
        for ard in (False, True)
    }
    begin = time.perf_counter()
    forest = RandomForestRegressor(trees, random_state=seed).fit(known.numpy(), targets.numpy())
    r2 = float(r2_score(truth, forest.predict(new.numpy())))
    seconds = time.perf_counter() - begin
    return found | {"68 ordinates: random forest": {"r2": r2, "seconds": seconds}}


def run(options: Options) -> list[Row]:
    """Return one row per method."""
    train, atoms, trees, count = (30, 32, 10, 60) if options.quick else (200, 128, 500, None)
    foils, clouds, targets = airfoil_clouds(count, atoms)
    heights = ordinates(foils.outlines)
    found: dict[str, list[Scores]] = {}
    for seed in progress(range(options.seeds), "splits"):
        parts = map(torch.from_numpy, foils.split(train, seed=seed))
        split = Split(foils.outlines, clouds, heights, targets, *parts)
        results = by_outlines(split, seed) | by_ordinates(split, seed, trees)
        for name, score in results.items():
            found.setdefault(name, []).append(score)
    rows: list[Row] = []
    for name, scores in sorted(found.items()):
        mean, lowest = means(scores), min(one["r2"] for one in scores)
        row: Row = {"name": name, "r2": mean["r2"], "lowest": lowest}
        rows.append(row | {"coverage": mean.get("coverage"), "seconds": mean["seconds"]})
    return rows


if __name__ == "__main__":
    main(run)
