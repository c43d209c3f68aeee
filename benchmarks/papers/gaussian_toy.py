r"""The Gaussian toy of Bachoc et al. 2023 and Allain et al. 2024: clouds, targets and references.

A cloud has 30 points from an isotropic Gaussian. Its mean :math:`m` is uniform in
:math:`[-0.3, 0.3]^d`, and its variance :math:`\sigma^2` is uniform in :math:`[0.01^2, 0.02^2]`, as
printed by Allain et al.; the code of Bachoc et al. draws :math:`\sigma` uniformly in
:math:`[0.01, 0.02]` instead. There are 100 clouds, 50 for training and 50 for testing. The target is
that of Allain et al. 2024, equation 12,

.. math::
    y = \frac{\sum_{i=1}^d (-1)^i (m_i + 0.5)^i}{1 + \sigma}.

In two dimensions it is the negative of the other target, of their section 4.3.1,
:math:`(m_1 + 0.5 - (m_2 + 0.5)^2) / (1 + \sigma)`. The code of Bachoc et al. divides by 1 and then adds
:math:`\sigma`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.draws import Draws
from gp_distributions import PointClouds, ReferenceMeasure

# Training clouds and targets, test clouds and targets.
Data = tuple[PointClouds, Tensor, PointClouds, Tensor]


def toy(
    dim: int, seed: int, *, count: int = 100, uniform: str = "variance", divided: bool = True
) -> Data:
    """Draw the clouds and compute their targets.

    Args:
        dim: Dimension of the points.
        seed: Random seed.
        count: Number of clouds, half of them for training.
        uniform: What is uniformly distributed, ``"variance"`` or ``"deviation"``.
        divided: Whether the target is divided by 1 + sigma; otherwise, it is that of the code of Bachoc
            et al.
    """
    draws = Draws(seed)
    mean = 0.6 * draws.uniform(count, dim) - 0.3
    share = draws.uniform(count)
    deviation = {"variance": (1 + 3 * share).sqrt(), "deviation": 1 + share}[uniform] / 100
    noise = draws.normal(count, 30, dim)
    clouds = PointClouds(mean[:, None] + deviation[:, None, None] * noise)
    targets = target(mean, deviation, divided=divided)
    half = count // 2
    return clouds[:half], targets[:half], clouds[half:], targets[half:]


def paired_toy(dim: int, seed: int) -> Data:
    """Draw clouds with uniform deviations, and sums of the other target over pairs of coordinates."""
    draws = Draws(seed)
    mean = 0.6 * draws.uniform(100, dim) - 0.3
    std = 0.01 + 0.01 * draws.uniform(100)
    clouds = PointClouds(mean[:, None] + std[:, None, None] * draws.normal(100, 30, dim))
    pairs = mean[:, 0::2] + 0.5 - (mean[:, 1::2] + 0.5).square()
    targets = pairs.sum(-1) / (1 + std)
    return clouds[:50], targets[:50], clouds[50:], targets[50:]


def target(mean: Tensor, deviation: Tensor, *, divided: bool = True) -> Tensor:
    """Compute targets from an ``N x d`` tensor of means and a tensor of ``N`` deviations."""
    orders = torch.arange(1, mean.shape[-1] + 1)
    sums = ((-1.0) ** orders * (mean + 0.5) ** orders).sum(-1)
    return sums / (1 + deviation) if divided else sums - deviation


def reference(kind: str, dim: int, seed: int, size: int = 6) -> ReferenceMeasure:
    """Draw a reference of Allain et al.

    Args:
        kind: ``"normal"``, from N(0, 0.1 I); ``"far"``, uniform in [-20, -10]^d; ``"narrow"``, from
            N((-0.2, ..., -0.2), 1e-4 I).
        dim: Dimension of the atoms.
        seed: Random seed.
        size: Number of atoms.
    """
    draws = Draws(1000 + seed)
    normal = draws.normal(size, dim)
    if kind == "narrow":
        return ReferenceMeasure(0.01 * normal - 0.2)
    if kind == "far":
        return ReferenceMeasure(draws.uniform(size, dim, low=-20, high=-10))
    return ReferenceMeasure(0.1**0.5 * normal)
