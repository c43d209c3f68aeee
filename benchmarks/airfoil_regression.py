r"""How well is lift to drag predicted from outlines, and from outlines that are meshed otherwise?

Lift-to-drag ratios of real airfoils: 200 to train on, all others to test, splits 0, 1, ... of
``Airfoils.split``. Matern 5/2 where nothing else is said, hyperparameters by marginal likelihood; how
all distances compare is what :mod:`benchmarks.distance_comparison` shows.

- ``outlines``: 128 points of equal arc length, without their order, by three distances;
- ``68 ordinates``: 34 heights of either surface, which needs outlines in order: GPs with one
  lengthscale and with one for each ordinate (``ard``), and a random forest of 500 trees;
- ``re-meshed``: models of the SW2 distance meet test outlines of other meshes: 30 to 200 vertices, taken
  from the outline at arc lengths whose density is proportional to
  :math:`\exp(\alpha \sin(2 \pi s + \phi) + \beta \sin(4 \pi s + \psi))`, with random phases and
  :math:`\alpha, \beta` normal of standard deviation 1/2. They are read with uniform weights, with the
  arc length that each vertex stands for (``PointClouds.from_curves``), or at 128 points of equal arc
  length (``PointClouds.from_curves(atoms=128)``). ``normalised``: by ``PointClouds.normalize``, with the
  centre and scales of the training shapes, which brings out the vertical axis.

Columns: ``r2``, with the ``lowest`` over splits, and ``coverage`` of 95% intervals on test shapes, means
over splits; ``expected`` and ``expected_coverage`` are what a straightforward implementation of the same
gave, over 3 splits; ``seconds`` of one split, fit and prediction.

    python -m benchmarks.airfoil_regression [--quick] [--seeds 5]
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from torch import Tensor
from tqdm import tqdm

from benchmarks.airfoil_search import matern, ordinates
from benchmarks.distance_comparison import DISTANCES
from benchmarks.harness import Options, Row, main
from gp_distributions import DistributionGP, DistributionKernel, PointClouds, fit
from gp_distributions.calibration import calibration
from gp_distributions.datasets import Airfoils, load_airfoils

Outline = NDArray[np.float64]
VERTICES = (30, 200)
# The R^2 and the coverage that were to be expected.
EXPECTED: dict[str, tuple[str | None, str | None]] = {
    "outlines: SW2": (".876", ".92 to .93"),
    "outlines: MMD laplace": (".868", ".92 to .93"),
    "68 ordinates: GP": (".880", None),
    "68 ordinates: GP, ard": (None, ".86"),
    "68 ordinates: random forest": (".795", None),
    "re-meshed: SW2 gaussian normalised, uniform weights": ("-1.4 to -.1", None),
    "re-meshed: SW2 gaussian normalised, arc-length weights": (".74 to .76", None),
    "re-meshed: SW2 gaussian normalised, resampled": (".83", None),
    "re-meshed: SW2 gaussian, resampled": (".35", None),
}


@dataclass(frozen=True)
class Score:
    """One way on one split."""

    r2: float
    coverage: float | None
    seconds: float


@dataclass(frozen=True)
class Split:
    """All shapes in three forms, with the numbers of those to train on and to test."""

    outlines: tuple[Outline, ...]
    clouds: PointClouds
    heights: Tensor
    targets: Tensor
    train: Tensor
    test: Tensor

    def score(self, predict: Callable[[], tuple[Tensor, Tensor | None]]) -> Score:
        """How well test shapes are predicted."""
        begin = time.perf_counter()
        mean, std = predict()
        seconds = time.perf_counter() - begin
        truth = self.targets[self.test]
        coverage = None if std is None else float(calibration(truth, mean, std).coverage)
        return Score(r2_score(truth, mean), coverage, seconds)


def remeshed(outline: Outline, rng: np.random.Generator) -> Outline:
    """The outline with another number of vertices, of random density."""
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


def fit_predict(model: DistributionGP, X: PointClouds | Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations after a fit."""
    return fit(model).predict(X)


def by_outlines(split: Split, seed: int) -> dict[str, Score]:
    """Three distances, and what the first does on other meshes."""
    train, test = split.train, split.test
    rng = np.random.default_rng(seed)
    outlines = [remeshed(split.outlines[i], rng) for i in test.tolist()]
    meshes = {
        "uniform weights": PointClouds.from_list(outlines),
        "arc-length weights": PointClouds.from_curves(outlines),
        "resampled": PointClouds.from_curves(outlines, atoms=split.clouds.points.shape[-2]),
    }
    found = {}
    for name, profile, normalised in (
        *itertools.product(["SW2"], ["matern52", "gaussian"], [False, True]),
        ("MMD laplace", "matern52", False),
        ("linear transport", "matern52", False),
    ):
        known, new = split.clouds[train], split.clouds[test]
        read = meshes if name == "SW2" else {}
        label = name if profile == "matern52" else f"{name} {profile}"
        if normalised:
            label = f"{label} normalised"
            read = {way: clouds.normalize(like=known) for way, clouds in meshes.items()}
            known, new = known.normalize(), new.normalize(like=known)
        kernel = ScaleKernel(DistributionKernel(DISTANCES[name][1](known), profile))
        model = DistributionGP(known, split.targets[train], kernel)
        found[f"outlines: {label}"] = split.score(partial(fit_predict, model, new))
        for way, clouds in read.items():
            found[f"re-meshed: {label}, {way}"] = split.score(partial(model.predict, clouds))
    return found


def by_ordinates(split: Split, seed: int, trees: int) -> dict[str, Score]:
    """Two GPs and a random forest on aligned heights."""
    known, new = split.heights[split.train], split.heights[split.test]
    targets = split.targets[split.train]
    found = {
        name: split.score(partial(fit_predict, matern(known, targets, ard=ard), new))
        for name, ard in (("GP", False), ("GP, ard", True))
    }

    def forest() -> tuple[Tensor, None]:
        grown = RandomForestRegressor(trees, random_state=seed).fit(known.numpy(), targets.numpy())
        return torch.from_numpy(grown.predict(new.numpy())), None

    found["random forest"] = split.score(forest)
    return {f"68 ordinates: {name}": score for name, score in found.items()}


def run(options: Options) -> list[Row]:
    """One row for each way."""
    train, atoms, trees = (30, 32, 10) if options.quick else (200, 128, 500)
    foils = load_airfoils()
    if options.quick:
        foils = Airfoils(foils.names[:60], foils.outlines[:60], foils.lift_to_drag[:60])
    heights = ordinates(foils.outlines)
    clouds = PointClouds.from_curves(foils.outlines, atoms=atoms)
    targets = torch.from_numpy(foils.lift_to_drag)
    found: dict[str, list[Score]] = {}
    for seed in tqdm(range(options.seeds), desc="splits", leave=False, disable=None):
        parts = map(torch.from_numpy, foils.split(train, seed=seed))
        split = Split(foils.outlines, clouds, heights, targets, *parts)
        results = by_outlines(split, seed) | by_ordinates(split, seed, trees)
        for name, score in results.items():
            found.setdefault(name, []).append(score)
    return [row(name, scores) for name, scores in sorted(found.items())]


def row(name: str, scores: list[Score]) -> Row:
    """Means over splits."""
    expected, expected_coverage = EXPECTED.get(name, (None, None))
    covered = [one.coverage for one in scores if one.coverage is not None]
    return {
        "name": name,
        "r2": statistics.fmean(one.r2 for one in scores),
        "lowest": min(one.r2 for one in scores),
        "expected": expected,
        "coverage": statistics.fmean(covered) if covered else None,
        "expected_coverage": expected_coverage,
        "seconds": statistics.fmean(one.seconds for one in scores),
    }


if __name__ == "__main__":
    main(__doc__, run)
