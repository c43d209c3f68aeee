"""Clouds to time Gram matrices of, and sides that compute them anew in each round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.draws import Draws
from benchmarks.harness import Side, Work
from gp_distributions import PointClouds
from gp_distributions.distances import Distance


@dataclass(frozen=True)
class Sizes:
    """The sizes of one Gram matrix."""

    clouds: int = 1000
    atoms: int = 100
    dim: int = 2

    def __str__(self) -> str:
        return f"T={self.clouds} n={self.atoms} d={self.dim}"

    def points(self) -> NDArray[np.float64]:
        """Return Gaussian clouds of several means and spreads, ``T x n x d``."""
        rng = np.random.default_rng(0)
        scale = rng.uniform(0.5, 2.0, (self.clouds, 1, self.dim))
        shift = rng.standard_normal((self.clouds, 1, self.dim))
        return scale * rng.standard_normal((self.clouds, self.atoms, self.dim)) + shift

    def rows(self) -> dict[str, Tensor]:
        """Return uniform, weighted and ragged clouds; the last have n/5 to 9n/5 atoms, n on average."""
        points, rng = self.points(), np.random.default_rng(1)
        fifth = max(1, self.atoms // 5)
        sizes = rng.integers(fifth, 9 * fifth, size=self.clouds, endpoint=True)
        ragged = PointClouds.from_list([rng.standard_normal((n, self.dim)) for n in sizes])
        weights = 0.1 + rng.uniform(size=points.shape[:2])
        return {
            "uniform": PointClouds(points).pack(),
            "weighted": PointClouds(points, weights).pack(),
            "ragged": ragged.pack(),
        }


def uncached(distance: Distance, work: Work) -> Side:
    """Return a side that computes everything again in each round."""

    def prepare() -> Work:
        distance.clear_cache()
        return work

    return prepare


def fixed(work: Work) -> Side:
    """Return work that needs no preparation as a side."""
    return lambda: work


def gram(distance: Distance, rows: Tensor) -> Side:
    """Return the Gram matrix of rows as a side."""
    return uncached(distance, lambda: distance.squared(rows))


def toy(clouds: int, atoms: int, size: int) -> tuple[PointClouds, Tensor, Tensor]:
    """Draw the Gaussian toy of Bachoc et al.: clouds, targets and reference atoms in the plane."""
    draws = Draws(0)
    mean = draws.uniform(clouds, 2, low=-0.3, high=0.3)
    std = draws.uniform(clouds, low=0.01, high=0.02)
    points = mean[:, None] + std[:, None, None] * draws.normal(clouds, atoms, 2)
    targets = (mean[:, 0] + 0.5 - (mean[:, 1] + 0.5).square()) / (1 + std)
    return PointClouds(points), targets, 0.1**0.5 * draws.normal(size, 2)


def equal_masses(*shape: int) -> Tensor:
    """Return equal weights that sum to one along the last axis."""
    return torch.full(shape, 1 / shape[-1], dtype=torch.float64)
