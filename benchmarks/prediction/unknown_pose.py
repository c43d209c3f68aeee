"""Can a kernel learn from shapes that lie in unknown pose?

Airfoils: the task of ``airfoil_regression``, 200 shapes of 128 points for training and
all others for testing, on splits 0 to 4; every shape is turned by a random angle. Solids: 60 random
ellipsoids, boxes, tori and dumb-bells of 400 points for training and 140 for testing, from seeds 0, 1,
...; every solid is turned at random.

- ``known pose``: ``SlicedWasserstein`` on shapes that are not turned.
- ``centred``: ``SlicedWasserstein(center=True)`` on turned shapes.
- ``principal axes``: the same on turned shapes that are turned back to their principal axes, whose
  signs are chosen by the third moments.
- ``rigid``: ``RigidSlicedWasserstein`` on turned shapes.

All have the profile Matern 5/2, and hyperparameters that maximise the marginal likelihood. Columns:
``r2`` and ``coverage`` of 95% intervals are means over splits, and ``lowest`` is the smallest ``r2``.
``pose`` is the median difference between predictions for a test shape in two random poses, in
predictive standard deviations.

    python -m benchmarks.prediction.unknown_pose [--quick] [--seeds 10]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

import torch
from gpytorch.kernels import ScaleKernel
from sklearn.metrics import r2_score
from torch import Tensor
from tqdm import tqdm

import gp_distributions as gd
from benchmarks.harness import Options, Row, main
from benchmarks.judging import beside
from gp_distributions.calibration import calibration
from gp_distributions.datasets import load_airfoils, random_solids
from gp_distributions.distances import Distance

SEEDS = 10

# Shapes in known pose, the same turned at random twice, targets, and indices for training and testing.
Task = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def turned(points: Tensor, seed: int) -> Tensor:
    """Turn every shape at random."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(
        len(points), *2 * points.shape[-1:], generator=generator, dtype=points.dtype
    )
    rotations, upper = torch.linalg.qr(normal)
    rotations = rotations * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    rotations[:, :, 0] *= torch.linalg.det(rotations).unsqueeze(-1)
    return points @ rotations.mT


def principal_axes(points: Tensor) -> Tensor:
    """Turn every shape to its principal axes, with non-negative third moments."""
    centred = points - points.mean(-2, keepdim=True)
    _, axes = torch.linalg.eigh(centred.mT @ centred)
    aligned = centred @ axes
    signs = torch.where(aligned.pow(3).sum(-2, keepdim=True) < 0, -1.0, 1.0)
    return aligned * signs


def airfoils(options: Options) -> Iterator[Task]:
    """Outlines of airfoils as points."""
    train, atoms = (30, 32) if options.quick else (200, 128)
    foils = load_airfoils()
    points = gd.PointClouds.from_curves(foils.outlines, atoms=atoms).points
    targets = torch.from_numpy(foils.lift_to_drag)
    for seed in range(min(options.seeds, 5)):
        known, new = map(torch.from_numpy, foils.split(train, seed=seed))
        new = new[:40] if options.quick else new
        poses = turned(points, 2 * seed), turned(points, 2 * seed + 1)
        yield points, *poses, targets, known, new


def solids(options: Options) -> Iterator[Task]:
    """Random solids as points."""
    train, test, atoms = (20, 10, 60) if options.quick else (60, 140, 400)
    for seed in range(options.seeds):
        drawn = random_solids(train + test, num_points=atoms, seed=seed)
        points = torch.from_numpy(drawn.points)
        poses = turned(points, 2 * seed), turned(points, 2 * seed + 1)
        known, new = torch.arange(train + test).split([train, test])
        yield points, *poses, torch.from_numpy(drawn.targets), known, new


def methods(dim: int, quick: bool) -> dict[str, tuple[Callable[[Tensor], Tensor] | None, Distance]]:
    """How each method aligns turned shapes (``None`` if the pose is known), and its distance."""
    sliced, rigid = (
        partial(kind, dim) for kind in (gd.SlicedWasserstein, gd.RigidSlicedWasserstein)
    )
    if quick:
        sliced, rigid = partial(sliced, num_slices=20), partial(rigid, num_slices=30)
    return {
        "known pose": (None, sliced()),
        "centred": (torch.clone, sliced(center=True)),
        "principal axes": (principal_axes, sliced(center=True)),
        "rigid": (torch.clone, rigid()),
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
        "solids in unknown pose: R² beside that in known pose",
        ">= 0.93, not below it",
        "r2",
        ("solids: rigid", "solids: known pose"),
        lambda ours, known: ours >= max(0.93, known),
        asked=True,
    ),
)


def run(options: Options) -> list[Row]:
    """Return one row per task and method."""
    rows: list[Row] = []
    for task, (dim, tasks) in {"airfoils": (2, airfoils), "solids": (3, solids)}.items():
        found: dict[str, list[tuple[float, float, float]]] = {}
        for data in tqdm(tasks(options), desc=task, leave=False, disable=None):
            upright, first, second, targets, known, new = data
            for name, (prepare, distance) in methods(dim, options.quick).items():
                one, other = (
                    (upright, upright) if prepare is None else map(prepare, (first, second))
                )
                kernel = ScaleKernel(gd.DistributionKernel(distance))
                model = gd.fit(
                    gd.DistributionGP(gd.PointClouds(one[known]), targets[known], kernel)
                )
                mean, std = model.predict(gd.PointClouds(one[new]))
                again = model.predict(gd.PointClouds(other[new]))[0]
                found.setdefault(name, []).append(
                    (
                        r2_score(targets[new], mean),
                        float(calibration(targets[new], mean, std).coverage),
                        float(((mean - again).abs() / std).median()),
                    )
                )
        for name, scores in found.items():
            r2, coverage, pose = zip(*scores, strict=True)
            rows.append(
                {
                    "name": f"{task}: {name}",
                    "r2": statistics.fmean(r2),
                    "lowest": min(r2),
                    "coverage": statistics.fmean(coverage),
                    "pose": statistics.fmean(pose),
                }
            )
    return rows


if __name__ == "__main__":
    main(run)
