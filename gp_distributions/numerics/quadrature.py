"""Quadrature of densities known up to a constant: importance sampling around the mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

# The step of finite differences, in standard deviations of the prior.
_STEP = 0.05
# Bounds of the search for the mode, and of the standard deviations of the first proposal.
_FARTHEST, _NARROWEST, _WIDEST = 5.0, 0.02, 1.5
# Proposals are adapted until importance sampling is worth this share of its points.
_ENOUGH, _ROUNDS = 0.3, 4

LogDensity = Callable[[Tensor], Tensor]


def importance_points(
    log_density: LogDensity, start: Tensor, num: int, *, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw points that represent a density, by importance sampling around its mode.

    The first proposal is normal, with the curvature at the mode (Laplace's approximation), and a fourth
    of its points are standard normal, so that weights in the tails are bounded. Further proposals take
    the weighted mean and covariance of all points before, until the weights are even enough. Points are
    quasi-random. Their weights are the density over that of all proposals together.

    Args:
        log_density: Function of an ``n x p`` tensor that returns ``n`` log densities, up to a constant.
            It should decay like a normal density of standard deviation about one.
        start: Points from which the mode is searched, ``S x p``.
        num: Number of points of each proposal.
        seed: Random seed of the quasi-random points.

    Returns:
        The points, ``n x p`` for ``n >= num``; the logarithms of their weights, which sum to one; and
        their log densities.

    Source: Cornuet, Marin, Mira and Robert 2012 (adaptive multiple importance sampling).
    """
    mode = _mode(log_density, start)
    dimension, unit = len(mode), torch.eye(start.shape[-1]).to(start)
    around = _Proposal(mode, _inverse_root(_hessian(log_density, mode)), num - num // 4)
    proposals, new = [], [around, _Proposal(torch.zeros_like(mode), unit, num // 4)]
    normals = _normals(num * _ROUNDS, dimension, seed).to(mode)
    points, densities = mode.new_empty(0, dimension), mode.new_empty(0)
    while True:
        first = len(points)
        for proposal in new:
            drawn = normals[len(points) : len(points) + proposal.number]
            points = torch.cat([points, proposal.centre + drawn @ proposal.root.mT])
        proposals += new
        densities = torch.cat([densities, log_density(points[first:])])
        each = torch.stack([proposal.log_density(points) for proposal in proposals])
        weights = densities - each.logsumexp(0)
        weights = weights - weights.logsumexp(0)
        worth = 1 / (2 * weights).exp().sum()
        if worth >= _ENOUGH * len(points) or len(points) == len(normals):
            return points, weights, densities
        share = weights.exp().unsqueeze(-1)
        centre = (share * points).sum(0)
        spread = (share * (points - centre)).mT @ (points - centre)
        # Few points determine only the variances of a covariance matrix.
        spread = 0.5 * (spread + torch.diag(spread.diagonal())) + _NARROWEST**2 * unit
        new = [_Proposal(centre, torch.linalg.cholesky(spread), num)]


@dataclass(frozen=True)
class _Proposal:
    """A normal distribution from which a number of points is drawn."""

    centre: Tensor
    root: Tensor
    number: int

    def log_density(self, points: Tensor) -> Tensor:
        """Return the log density of points times the number of points, up to a constant."""
        z = torch.linalg.solve(self.root, (points - self.centre).mT)
        logdet = torch.linalg.slogdet(self.root).logabsdet
        return math.log(self.number) - 0.5 * z.square().sum(0) - logdet


def _mode(log_density: LogDensity, start: Tensor) -> Tensor:
    """Maximise a density from the best start, with gradients by finite differences."""
    dimension = start.shape[-1]
    steps = _STEP * torch.eye(dimension).to(start)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.as_tensor(flat).to(start)
        values = -log_density(torch.cat([point[None], point + steps, point - steps]))
        gradient = (values[1 : dimension + 1] - values[dimension + 1 :]) / (2 * _STEP)
        return values[0].item(), gradient.double().cpu().numpy()

    first = start[log_density(start).argmax()].clamp(-_FARTHEST, _FARTHEST)
    bounds = [(-_FARTHEST, _FARTHEST)] * dimension
    found = scipy.optimize.minimize(
        loss, first.double().cpu().numpy(), jac=True, method="L-BFGS-B", bounds=bounds
    )
    return torch.as_tensor(found.x).to(start)


def _hessian(log_density: LogDensity, point: Tensor) -> Tensor:
    """Return the matrix of second derivatives of the negative log density, by finite differences."""
    dimension = len(point)
    steps = _STEP * torch.eye(dimension).to(point)
    both = (steps[:, None] + steps).flatten(0, 1)
    apart = (steps[:, None] - steps).flatten(0, 1)
    values = -log_density(point + torch.cat([both, apart, -apart, -both]))
    parts = values.reshape(4, dimension, dimension)
    return (parts[0] - parts[1] - parts[2] + parts[3]) / (4 * _STEP**2)


def _inverse_root(hessian: Tensor) -> Tensor:
    """Return a root of the inverse of a matrix of second derivatives, between bounds."""
    values, vectors = torch.linalg.eigh((hessian + hessian.mT) / 2)
    values = values.clamp(_WIDEST**-2, _NARROWEST**-2)
    return vectors * values.rsqrt()


def _normals(num: int, dimension: int, seed: int) -> Tensor:
    """Return quasi-random standard normal points."""
    sequence = torch.quasirandom.SobolEngine(dimension, scramble=True, seed=seed)
    uniform = sequence.draw(num, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))
