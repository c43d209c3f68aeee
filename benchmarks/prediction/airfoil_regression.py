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
is the smallest ``r2``. ``expected`` and ``expected_coverage`` are results of a straightforward
implementation over 3 splits. ``seconds`` is the time of fit and prediction on one split.

    python -m benchmarks.prediction.airfoil_regression [--quick] [--seeds 5]
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

from benchmarks.harness import Options, Row, main
from benchmarks.prediction.distance_comparison import DISTANCES
from benchmarks.search.searches import matern
from benchmarks.shapes import ordinates
from gp_distributions import DistributionGP, DistributionKernel, PointClouds, fit
from gp_distributions.calibration import calibration
from gp_distributions.datasets import Airfoils, load_airfoils

Outline = NDArray[np.float64]
VERTICES = (30, 200)
# Expected R^2 and coverage.
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
    """Results of one method on one split."""

    r2: float
    coverage: float | None
    seconds: float


@dataclass(frozen=True)
class Split:
    """All shapes in three forms, with the indices of training and test shapes."""

    outlines: tuple[Outline, ...]
    clouds: PointClouds
    heights: Tensor
    targets: Tensor
    train: Tensor
    test: Tensor

    def score(self, predict: Callable[[], tuple[Tensor, Tensor | None]]) -> Score:
        """Accuracy and coverage on the test shapes."""
        begin = time.perf_counter()
        mean, std = predict()
        seconds = time.perf_counter() - begin
        truth = self.targets[self.test]
        coverage = None if std is None else float(calibration(truth, mean, std).coverage)
        return Score(r2_score(truth, mean), coverage, seconds)


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


def fit_predict(model: DistributionGP, X: PointClouds | Tensor) -> tuple[Tensor, Tensor]:
    """Fit a model, and return predicted means and standard deviations."""
    return fit(model).predict(X)


def by_outlines(split: Split, seed: int) -> dict[str, Score]:
    """Compare three distances, and test the first one on other meshes."""
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
    """Compare two GPs and a random forest on aligned heights."""
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
    """Return one row per method."""
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
    """Average over splits."""
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
    main(run)
