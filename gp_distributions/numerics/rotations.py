"""Rotations that bring one weighted point set closest to another, in sliced Wasserstein distance."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gp_distributions.numerics.directions import sphere_directions
from gp_distributions.numerics.quantiles import weighted_cell_quantiles

# Number of cells over which quantile functions are averaged.
_CELLS = 64
# Number of angles, which is even, of directions in the plane, and of directions in space.
_ANGLES, _DIRECTIONS = 720, 64
# Number of the best starts in space that are improved by L-BFGS.
_REFINED = 4


def nearest_rotation(
    points: Tensor, weights: Tensor, target: Tensor, target_weights: Tensor
) -> tuple[Tensor, float]:
    r"""Find the rotation :math:`g` about the origin with the smallest :math:`SW_2^2(g P, P')`.

    In the plane, a rotation by :math:`2 \pi m / K` shifts the quantile functions along ``K``
    equispaced directions by ``m``, so all of these rotations are compared by one cross-correlation; a
    parabola through the best one and its neighbours gives the angle in between. In space, the 24
    rotations that map the principal axes of one set onto those of the other are compared, and the best
    of them are improved by L-BFGS.

    Args:
        points: An ``n x d`` tensor in double precision, with ``d`` 2 or 3.
        weights: Their ``n`` weights, which sum to one.
        target: An ``m x d`` tensor.
        target_weights: Their ``m`` weights, which sum to one.

    Returns:
        A ``d x d`` rotation matrix, and the squared distance after the rotation.
    """
    find = _in_plane if points.shape[-1] == 2 else _in_space
    return find(points, weights, target, target_weights)


def _quantiles(directions: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    """Compute the scaled cell averages of the quantile functions along directions, ``L x N``."""
    return weighted_cell_quantiles(directions @ points.mT, weights, _CELLS) / math.sqrt(_CELLS)


def _in_plane(
    points: Tensor, weights: Tensor, target: Tensor, target_weights: Tensor
) -> tuple[Tensor, float]:
    half = torch.arange(_ANGLES // 2).to(points) * (2 * math.pi / _ANGLES)
    directions = torch.stack([half.cos(), half.sin()], dim=-1)
    moving, fixed = (
        torch.cat([forth, -forth.flip(-1)])  # along opposite directions, quantiles change sign
        for forth in (
            _quantiles(directions, points, weights),
            _quantiles(directions, target, target_weights),
        )
    )
    spectra = torch.fft.rfft(fixed, dim=0) * torch.fft.rfft(moving, dim=0).conj()
    products = torch.fft.irfft(spectra.sum(-1), n=_ANGLES) / _ANGLES
    squared = (moving.square().sum() + fixed.square().sum()) / _ANGLES - 2 * products
    best = int(squared.argmin())
    before, least, after = (squared[(best + step) % _ANGLES].item() for step in (-1, 0, 1))
    curvature = before - 2 * least + after
    shift = (before - after) / (2 * curvature) if curvature > 0 else 0.0
    angle = 2 * math.pi * (best + shift) / _ANGLES
    cosine, sine = math.cos(angle), math.sin(angle)
    reached = max(least - (before - after) * shift / 4, 0.0)
    return points.new_tensor([[cosine, -sine], [sine, cosine]]), reached


def _in_space(
    points: Tensor, weights: Tensor, target: Tensor, target_weights: Tensor
) -> tuple[Tensor, float]:
    directions = sphere_directions(3, _DIRECTIONS).to(points)
    fixed = _quantiles(directions, target, target_weights)

    def squared(rotations: Tensor) -> Tensor:
        # The projections of turned points are projections onto directions turned back.
        moving = _quantiles(directions @ rotations, points, weights)
        return (moving - fixed).square().sum((-2, -1)) / _DIRECTIONS

    frames = _frame(target, target_weights) @ _cube_rotations().to(points)
    starts = frames @ _frame(points, weights).mT
    order = squared(starts).argsort()[:_REFINED]

    def turned(vector: Tensor, start: Tensor) -> Tensor:
        x, y, z = vector.unbind()
        none = torch.zeros_like(x)
        skew = torch.stack([none, -z, y, z, none, -x, -y, x, none]).view(3, 3)
        return torch.linalg.matrix_exp(skew) @ start

    def residual(values: NDArray[np.float64], start: Tensor) -> tuple[float, NDArray[np.float64]]:
        with torch.enable_grad():
            vector = torch.from_numpy(values).to(points).requires_grad_()
            value = squared(turned(vector, start))
            (gradient,) = torch.autograd.grad(value, vector)
        return value.item() / unit, gradient.cpu().numpy() / unit

    unit = fixed.square().sum().item() / _DIRECTIONS or 1.0
    found = [
        (minimize(residual, np.zeros(3), args=(start,), jac=True, method="L-BFGS-B"), start)
        for start in starts[order]
    ]
    best, start = min(found, key=lambda pair: float(pair[0].fun))
    return turned(torch.from_numpy(best.x).to(points), start), float(best.fun) * unit


def _frame(points: Tensor, weights: Tensor) -> Tensor:
    """Return the principal axes as the columns of a rotation matrix."""
    axes = torch.linalg.eigh((weights.unsqueeze(-1) * points).mT @ points).eigenvectors
    return axes * torch.linalg.det(axes)  # an odd dimension: a change of all signs


def _cube_rotations() -> Tensor:
    """Return the 24 rotations that map the coordinate axes onto each other."""
    matrices = [
        torch.eye(3, dtype=torch.float64)[list(order)] * torch.tensor(signs).unsqueeze(-1)
        for order in itertools.permutations(range(3))
        for signs in itertools.product((1.0, -1.0), repeat=3)
    ]
    stacked = torch.stack(matrices)
    return stacked[torch.linalg.det(stacked) > 0]
