"""Can the line and the treatment of a cell be told from its outline, in unknown pose?

The 650 outlines of ``datasets.load_cells`` as 128 points at equal arc length, with ``ClassificationGP``,
the profile Matern 5/2 and hyperparameters that maximise the marginal likelihood. Accuracies are means
over stratified five-fold cross-validation, repeated with the seeds 0, 1 and 2, on the same folds for all
methods. ``majority`` is the share of the largest class.

- ``SW2``: ``SlicedWasserstein(center=True)``.
- ``principal axes``: the same on outlines that are turned to their principal axes, whose signs are
  chosen by the third moments.
- ``rigid``: ``RigidSlicedWasserstein``, also blind to reflections, to reflections and size, and with
  finer features (``fine``: 32 cells and 40 degrees in place of 16 and 24).
- ``rigid, turning``: ``RigidSlicedWasserstein(3, marks=1, reflections=True)`` on 256 points, each with
  the angle by which the outline turns over a 32nd of its length on either side as a mark. Angles are
  multiplied by the mean root mean square radius of all outlines.
- ``SW2, turning`` and ``principal axes, turning``: ``SW2`` and ``principal axes`` with the same 256
  points and marks.
- ``group average``: ``GroupAverageKernel`` of ``SlicedWasserstein`` over 8 rotations and 8 reflections.
  Its hyperparameters are learned from half of the training cells.
- ``chosen``: in each fold the ``rigid`` or ``group average`` method whose leave-one-out log probability
  of the labels of the training cells is largest.

Two outlines occur twice, so that in some folds the copy of a test cell is among the training cells; this
adds at most 4 / 650 = .006 to any accuracy.

Columns: ``line`` and ``treatment`` are accuracies, ``line_loo`` and ``treatment_loo`` the leave-one-out
log probabilities on training folds, and ``picked`` the number of folds, of both labels, in which a
method was chosen. ``seconds`` is the time of a fold. The settings were set on the folds of the seeds
900 and 901, which consist of the same cells: the turning angle, its window and the number of points were
chosen with all labels at hand, and no outer validation accounts for that.

    python -m benchmarks.prediction.cells [--quick] [--seeds 3]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor
from tqdm import tqdm

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import beside
from benchmarks.prediction.unknown_pose import principal_axes
from gp_distributions.datasets import Cells, load_cells
from gp_distributions.distances import Distance
from gp_distributions.kernels import GroupAverageKernel, planar_rotations

REPEATS, FOLDS, ATOMS = 3, 5, 128
# Concentration of the classes that are not the label; see ClassificationGP.
ALPHA_EPSILON = 0.1
AVERAGE = "group average"


@dataclass
class Method:
    """A method and what it reads.

    Attributes:
        make: Makes a kernel.
        rows: All cells, as its kernel reads them.
        share: Share of the training cells from which hyperparameters are learned.
        scores: For each label, a pair of accuracy and leave-one-out log probability for each fold.
    """

    make: Callable[[], Kernel]
    rows: Tensor
    share: float = 1.0
    seconds: float = 0.0
    scores: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def score(
        self, labels: NDArray[np.str_], train: NDArray[np.int64], test: NDArray[np.int64]
    ) -> tuple[float, float]:
        """Return the accuracy on test cells and the leave-one-out log probability on training cells."""
        begin = time.perf_counter()
        chosen = np.random.default_rng(0).permutation(train)[: round(self.share * len(train))]
        model = self._fitted(labels, np.sort(chosen))
        if len(chosen) < len(train):
            few, model = model, self._model(labels, train)
            for part in ("covar_module", "mean_module"):
                getattr(model, part).load_state_dict(getattr(few, part).state_dict())
        accuracy = float(np.mean(model.predict(self.rows[test]) == labels[test]))
        found = accuracy, float(model.leave_one_out().mean())
        self.seconds += time.perf_counter() - begin
        return found

    def _model(self, labels: NDArray[np.str_], train: NDArray[np.int64]) -> gd.ClassificationGP:
        kernel = ScaleKernel(self.make())
        return gd.ClassificationGP(
            self.rows[train], labels[train], kernel, alpha_epsilon=ALPHA_EPSILON
        )

    def _fitted(self, labels: NDArray[np.str_], train: NDArray[np.int64]) -> gd.ClassificationGP:
        model = self._model(labels, train)
        gd.fit(model, restarts=0)
        return model


def of_distance(distance: Distance, clouds: gd.PointClouds) -> Method:
    """Embed all cells once, and return a method that looks distances up."""
    squared = distance.squared(clouds.pack())
    indices = torch.arange(len(clouds), dtype=torch.float64).unsqueeze(-1)
    return Method(lambda: gd.DistributionKernel(gd.PrecomputedDistance(squared)), indices)


def turning_angles(points: Tensor) -> Tensor:
    """Return by how much ``N x n x 2`` counterclockwise outlines turn at each point, ``N x n x 1``."""
    apart = points.shape[-2] // 32
    after, before = points.roll(-apart, -2) - points, points - points.roll(apart, -2)
    cross = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    angles = torch.atan2(cross, (before * after).sum(-1))
    centred = points - points.mean(-2, keepdim=True)
    radius = centred.square().sum(-1).mean(-1).sqrt().mean()
    return radius * angles.unsqueeze(-1)


def average(slices: int, rotations: int) -> Kernel:
    """Average a kernel over rotations and reflections."""
    distance = gd.SlicedWasserstein(2, center=True, num_slices=slices, num_quantiles=24)
    group = planar_rotations(rotations, reflections=True)
    return GroupAverageKernel(gd.DistributionKernel(distance), group)


def methods(cells: Cells, quick: bool) -> dict[str, Method]:
    """All methods by name."""
    clouds = cells.clouds(atoms=16 if quick else ATOMS)
    size = 8 if quick else 50
    sliced = gd.SlicedWasserstein(2, center=True, num_slices=size, num_quantiles=size)
    rigid = (
        partial(gd.RigidSlicedWasserstein, 2, num_slices=20)
        if quick
        else partial(gd.RigidSlicedWasserstein, 2)
    )
    aligned = gd.PointClouds(principal_axes(clouds.points))
    outlines = cells.clouds(atoms=64 if quick else 2 * ATOMS).points
    turning = turning_angles(outlines)
    marked = gd.SlicedWasserstein(3, center=True, num_slices=size, num_quantiles=size)
    shape = (8, 2) if quick else (24, 8)
    return {
        "SW2": of_distance(sliced, clouds),
        "principal axes": of_distance(sliced, aligned),
        "rigid": of_distance(rigid(), clouds),
        "rigid, reflections": of_distance(rigid(reflections=True), clouds),
        "rigid, reflections and scale": of_distance(rigid(reflections=True, scale=True), clouds),
        "rigid, reflections, fine": of_distance(
            rigid(reflections=True, num_quantiles=32, max_degree=40), clouds
        ),
        "rigid, turning": of_distance(
            gd.RigidSlicedWasserstein(
                3, marks=1, reflections=True, num_slices=20 if quick else 100
            ),
            gd.PointClouds(torch.cat([outlines, turning], dim=-1)),
        ),
        "SW2, turning": of_distance(marked, gd.PointClouds(torch.cat([outlines, turning], dim=-1))),
        "principal axes, turning": of_distance(
            marked, gd.PointClouds(torch.cat([principal_axes(outlines), turning], dim=-1))
        ),
        AVERAGE: Method(lambda: average(*shape), clouds.pack(), share=0.5),
    }


def subset(cells: Cells, every: int) -> Cells:
    """Keep every ``every``-th cell."""
    return Cells(cells.outlines[::every], cells.lines[::every], cells.treatments[::every])


_PEERS = ("SW2", "principal axes", "SW2, turning", "principal axes, turning")
TARGETS = tuple(
    beside(
        f"cells, {label}: accuracy beside SW2 and principal axes, without and with marks",
        f">= {least:g}, above all",
        label,
        ("chosen", *_PEERS),
        lambda ours, *others, least=least: ours >= least and ours > max(others),
        asked=True,
    )
    for label, least in (("line", 0.76), ("treatment", 0.73))
)


def run(options: Options) -> list[Row]:
    """Return one row per method."""
    cells = load_cells()
    if options.quick:
        cells = subset(cells, 10)
    ways = methods(cells, options.quick)
    targets = {"line": cells.lines, "treatment": cells.treatments}
    repeats = min(options.seeds, 1 if options.quick else REPEATS)
    folds = 2 if options.quick else FOLDS
    for seed in tqdm(range(repeats), desc="repeats", leave=False, disable=None):
        validate(ways, targets, folds, seed)
    return table(ways, targets)


def validate(
    ways: dict[str, Method], targets: dict[str, NDArray[np.str_]], folds: int, seed: int
) -> None:
    """Add the scores of a cross-validation to all methods."""
    for label, labels in targets.items():
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
        for train, test in splits.split(labels, labels):
            for way in ways.values():
                way.scores.setdefault(label, []).append(way.score(labels, train, test))


def table(ways: dict[str, Method], targets: dict[str, NDArray[np.str_]]) -> list[Row]:
    """Return one row per method, for the choice among methods, and for the largest class."""
    mine = {name: way for name, way in ways.items() if name.startswith(("rigid", AVERAGE))}
    chosen, picked = choose(mine)
    rows = [row(name, way.scores, picked.get(name), way.seconds) for name, way in ways.items()]
    rows.append(row("chosen", chosen, None, None))
    majority: Row = {"name": "majority"}
    for label, labels in targets.items():
        majority[label] = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
    return [*rows, majority]


def choose(ways: dict[str, Method]) -> tuple[dict[str, list[tuple[float, float]]], dict[str, int]]:
    """Return the scores of the best method of each fold, and how often each method is the best."""
    picked = dict.fromkeys(ways, 0)
    chosen: dict[str, list[tuple[float, float]]] = {}
    for label in ("line", "treatment"):
        for fold in range(len(next(iter(ways.values())).scores[label])):
            best = max(ways, key=lambda name: ways[name].scores[label][fold][1])
            picked[best] += 1
            chosen.setdefault(label, []).append(ways[best].scores[label][fold])
    return chosen, picked


def row(
    name: str,
    scores: dict[str, list[tuple[float, float]]],
    picked: int | None,
    seconds: float | None,
) -> Row:
    """Average over folds."""
    found: Row = {"name": name}
    for label in ("line", "treatment"):
        found[label] = statistics.fmean(accuracy for accuracy, _ in scores[label])
        found[f"{label}_loo"] = statistics.fmean(loo for _, loo in scores[label])
    folds = sum(map(len, scores.values()))
    return found | {"picked": picked, "seconds": None if seconds is None else seconds / folds}


if __name__ == "__main__":
    main(run)
