"""Can a kernel learn from shapes that lie in unknown pose?

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

    python -m benchmarks.prediction.unknown_pose [--quick] [--seeds 10]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

import gp_distributions as gd
from benchmarks.data.solids import random_solids
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import beside
from benchmarks.regression import Scores, fitted, score_of, summary
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
    return rows


if __name__ == "__main__":
    main(run)
