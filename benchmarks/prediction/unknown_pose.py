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
- ``rigid, normals``: the same on turned outlines of airfoils with normals. ``fit`` chooses the factor of
  normals and the metric, as it does around the default distance.

All have the profile Matern 5/2, and hyperparameters that maximise the marginal likelihood. Columns:
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
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import beside
from benchmarks.regression import Scores, fitted, kernel_of, score_of, summary
from benchmarks.shapes import principal_axes, some_airfoils, turned
from gp_distributions.datasets import random_solids
from gp_distributions.distances import Distance
from gp_distributions.kernels.default import standardized

SEEDS = 10

# Shapes in known pose, perhaps with normals, the seed of poses, targets, and indices for training and
# testing.
Task = tuple[Tensor, int, Tensor, Tensor, Tensor]


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


def methods(dim: int, quick: bool) -> dict[str, tuple[Callable[[Tensor], Tensor] | None, Distance]]:
    """How each method aligns turned shapes (``None`` if the pose is known), and its distance."""
    sliced, rigid = partial(gd.SlicedWasserstein, dim), partial(gd.RigidSlicedWasserstein)
    if quick:
        sliced, rigid = partial(sliced, num_slices=20), partial(rigid, num_slices=30)
    normals = {"rigid, normals": (torch.clone, rigid(4, normals=2))} if dim == 2 else {}
    return {
        "known pose": (None, sliced()),
        "centred": (torch.clone, sliced(center=True)),
        "principal axes": (principal_axes, sliced(center=True)),
        "rigid": (torch.clone, rigid(dim)),
        **normals,
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
        "airfoils in unknown pose, with normals: R² beside that without",
        ">= 0.89, above it",
        "r2",
        ("airfoils: rigid, normals", "airfoils: rigid"),
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
)


def scores(task: Task, prepare: Callable[[Tensor], Tensor] | None, distance: Distance) -> Scores:
    """Fit on training shapes, and predict test shapes in two poses."""
    points, seed, targets, known, new = task
    normals = getattr(distance, "normals", 0)
    # Normals turn like further points.
    parts = torch.cat(points[..., : distance.dim].split(distance.dim - normals, -1), dim=-2)
    one, other = (
        torch.cat(posed.split(points.shape[-2], dim=-2), dim=-1)
        for posed in (
            parts if prepare is None else prepare(turned(parts, 2 * seed + i)) for i in range(2)
        )
    )
    X = gd.PointClouds(one, num_normals=normals)
    if normals:
        kernel = kernel_of(standardized(distance, X))
        model = gd.DistributionGP(X[known], targets[known], kernel)
        model.chooses_metric = True
        gd.fit(model, progress=False)
    else:
        model = fitted(distance, X[known], targets[known])
    mean, std = model.predict(X[new])
    again = model.predict(gd.PointClouds(other[new], num_normals=normals))[0]
    pose = float(((mean - again).abs() / std).median())
    return score_of(targets[new], mean, std) | {"pose": pose}


def run(options: Options) -> list[Row]:
    """Return one row per task and method."""
    rows: list[Row] = []
    for task, (dim, tasks) in {"airfoils": (2, airfoils), "solids": (3, solids)}.items():
        found: dict[str, list[Scores]] = {}
        for data in progress(tasks(options), task):
            for name, method in methods(dim, options.quick).items():
                found.setdefault(name, []).append(scores(data, *method))
        rows += [
            summary(f"{task}: {name}", each, "r2", "coverage", "pose")
            for name, each in found.items()
        ]
    return rows


if __name__ == "__main__":
    main(run)
