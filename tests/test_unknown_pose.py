"""Everything downstream of a model works with one that does not see the pose.

Ovals, some of them with a dent, turned at random; targets depend on their shape alone.
"""

import math

import pytest
import torch
from botorch.acquisition import PosteriorMean
from cases import rand, randn
from torch import Tensor

from gp_distributions import (
    DistributionGP,
    PointClouds,
    RigidSlicedWasserstein,
    fit,
    optimize_free_shapes,
    sensitivity,
)
from gp_distributions.bayesopt import DataPenalty

NUM, TRAIN = 60, 40


def turned(points: Tensor, seed: int) -> Tensor:
    """Turn and move every shape at random."""
    generator = torch.Generator().manual_seed(seed)
    angles = 2 * math.pi * rand(len(points), seed=generator)
    shifts = 5 * randn(len(points), 1, 2, seed=generator)
    rotations = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1)
    return points @ rotations.view(-1, 2, 2).mT + shifts


GENERATOR = torch.Generator().manual_seed(0)
ASPECTS = 1 + 1.5 * rand(NUM, seed=GENERATOR)
DENTED = torch.arange(NUM) % 2
_angles = torch.linspace(0, 2 * math.pi, 33, dtype=torch.float64)[:-1]
# Not symmetric, since absolute values have a kink at zero.
_radii = (
    1
    + 0.1 * (3 * _angles + 0.5).cos()
    - 0.5 * DENTED[:, None] * torch.exp(-8 * (1 - _angles.cos()))
)
OUTLINES = _radii.unsqueeze(-1) * torch.stack([_angles.cos(), _angles.sin()], -1)
OUTLINES = OUTLINES * torch.stack([ASPECTS.rsqrt(), ASPECTS.sqrt()], -1).unsqueeze(1)
TARGETS = ASPECTS.log() + 0.3 * DENTED
TARGETS += 0.01 * randn(NUM, seed=GENERATOR)
SHAPES, AGAIN = (PointClouds(turned(OUTLINES, seed), geometric=True) for seed in (1, 2))


@pytest.fixture(scope="module")
def model() -> DistributionGP:
    return fit(DistributionGP(SHAPES[:TRAIN], TARGETS[:TRAIN]), restarts=0)


def test_free_shapes(model: DistributionGP) -> None:
    """Atoms move, shapes that are only turned are not penalised, and the pose does not drift."""
    bounds = torch.tensor([[-3.0, -3.0], [3.0, 3.0]], dtype=torch.float64)
    starts = PointClouds(OUTLINES[[0, 1]])
    found, value = optimize_free_shapes(PosteriorMean(model), starts, bounds, maxiter=15)
    before = model.predict(starts)[0]
    assert float(value) > float(before.max()) + 0.05
    means, radius = found.points.mean(-2), OUTLINES.norm(dim=-1).max()
    assert float(means.norm()) < 0.1 * float(radius)
    penalty = DataPenalty(RigidSlicedWasserstein(2), SHAPES)
    assert float(penalty(AGAIN.pack().unsqueeze(-2)).max()) < 1e-3
    assert float(penalty(PointClouds(3 * OUTLINES[:1]).pack().unsqueeze(-2))) > 1


def test_sensitivity(model: DistributionGP) -> None:
    """Gradients turn with the shape; they neither push it away nor turn it."""
    (one, other) = (sensitivity(model, clouds[TRAIN:]) for clouds in (SHAPES, AGAIN))
    for name in ("mean_weights", "mean_points"):
        first, second = (getattr(found, name) for found in (one, other))
        if name == "mean_points":
            first, second = first.norm(dim=-1), second.norm(dim=-1)
        assert float((first - second).norm() / first.norm()) < 0.1
    gradients, points = one.mean_points, SHAPES.points[TRAIN:]
    sizes = gradients.norm(dim=-1).sum(-1)
    assert float((gradients.sum(-2).norm(dim=-1) / sizes).max()) < 1e-10
    arms = points - points.mean(-2, keepdim=True)
    torques = (arms[..., 0] * gradients[..., 1] - arms[..., 1] * gradients[..., 0]).sum(-1)
    levers = (arms.norm(dim=-1) * gradients.norm(dim=-1)).sum(-1)
    assert float((torques.abs() / levers).median()) < 0.02
    stretch = (gradients * arms).sum((-2, -1)).abs()  # which is not a motion
    assert float((stretch / levers).median()) > 0.02
