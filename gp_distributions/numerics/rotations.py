"""Rotations and axes of point sets."""

from __future__ import annotations

import math

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.numerics.directions import sphere_directions
from gp_distributions.numerics.quantiles import weighted_cell_quantiles

# An axis is distinct if the larger of the two neighbouring variances is at least this multiple of the
# smaller one, and its standard error, in radians, is at most this number for independent atoms.
_RATIO, _STANDARD_ERROR = 1.5, 0.15


def distinct_axes(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""Find the principal axis of each cloud that differs most from the others in variance.

    This is the axis of the largest or of the smallest variance, such as that of a rod or of a disc.
    With :math:`\rho` the ratio of this variance to the next, or of the next to it, and
    :math:`n = 1 / \sum_i w_i^2` atoms, the standard error of the axis of independent normal atoms is
    :math:`\rho^{1/2} / (n^{1/2} (\rho - 1))` radians (Anderson 1963).

    Args:
        points: A ``C x n x d`` tensor of atoms, with ``d >= 2``.
        weights: A ``C x n`` tensor of weights that sum to one in each cloud.

    Returns:
        The axes, a ``C x d`` tensor of unit vectors without a direction, and a ``C`` mask of the
        clouds whose axis is distinct.
    """
    centred = points - weights.unsqueeze(-2) @ points
    values, vectors = torch.linalg.eigh((weights.unsqueeze(-1) * centred).mT @ centred)
    values = values.clamp_min(0)
    # A spread below rounding has no axis, and a variance below rounding is zero.
    floor = 100 * torch.finfo(points.dtype).eps * points.square().sum(-1).amax(-1, keepdim=True)
    values = values + floor
    ratios = torch.stack([values[:, 1] / values[:, 0], values[:, -1] / values[:, -2]])
    axes = torch.stack([vectors[..., 0], vectors[..., -1]])
    last = ratios[1] >= ratios[0]
    ratio = torch.where(last, ratios[1], ratios[0])
    size = 1 / weights.square().sum(-1)
    precise = size * (ratio - 1).square() >= ratio / _STANDARD_ERROR**2
    return torch.where(last.unsqueeze(-1), axes[1], axes[0]), precise & (ratio >= _RATIO)


def uniform_axes_p_value(axes: Tensor) -> float:
    r"""Test whether axes are uniform over all directions, by Bingham's test.

    With :math:`T` the mean of :math:`a a^\top` over ``C`` axes :math:`a`, the statistic

    .. math::
        \frac{C d (d + 2)}{2} \left( \mathrm{tr}(T^2) - \frac{1}{d} \right)

    is asymptotically chi-squared with :math:`(d - 1)(d + 2) / 2` degrees of freedom for uniform axes
    (Bingham 1974; Mardia and Jupp 2000, section 10.7.1). In the plane this is Rayleigh's test of the
    doubled angles.

    Args:
        axes: A ``C x d`` tensor of unit vectors.

    Returns:
        The p-value.
    """
    count, dim = axes.shape
    moments = axes.mT @ axes / count
    statistic = count * dim * (dim + 2) / 2 * (moments.square().sum().item() - 1 / dim)
    return float(scipy.stats.chi2.sf(statistic, (dim - 1) * (dim + 2) / 2))


def procrustes(
    points: Tensor, target: Tensor, weights: Tensor, *, center: bool = True, scale: bool = False
) -> Tensor:
    r"""Move points to corresponding points by the best rotation, translation and scaling.

    With :math:`U S V^\top` the singular value decomposition of :math:`\sum_i w_i y_i x_i^\top`, the
    rotation is :math:`U D V^\top`, where :math:`D` changes the sign of the smallest singular value if
    the determinant would be negative (Kabsch 1976).

    Args:
        points: The points :math:`x_i`, ``n x d``.
        target: The points :math:`y_i`, ``n x d``.
        weights: The ``n`` weights :math:`w_i`, which sum to one.
        center: Whether to move the mean of the points to that of the targets.
        scale: Whether to give the points the root mean square radius of the targets.

    Returns:
        The moved points.
    """
    old, new = (weights @ x if center else torch.zeros_like(x[0]) for x in (points, target))
    moving, fixed = points - old, target - new
    left, _, right = torch.linalg.svd((weights.unsqueeze(-1) * fixed).mT @ moving)
    signs = torch.ones_like(old)
    signs[-1] = torch.linalg.det(left @ right)
    moved = moving @ (left * signs @ right).mT
    if scale:
        radii = [(weights @ x.square().sum(-1)).sqrt() for x in (moving, fixed)]
        if radii[0] > 0:
            moved = moved * (radii[1] / radii[0])
    return moved + new


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

    # The 24 rotations that map the coordinate axes onto each other.
    cube = torch.from_numpy(scipy.spatial.transform.Rotation.create_group("O").as_matrix()).round()
    frames = _frame(target, target_weights) @ cube.to(points)
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
        (
            scipy.optimize.minimize(
                residual, np.zeros(3), args=(start,), jac=True, method="L-BFGS-B"
            ),
            start,
        )
        for start in starts[order]
    ]
    best, start = min(found, key=lambda pair: float(pair[0].fun))
    return turned(torch.from_numpy(best.x).to(points), start), float(best.fun) * unit


def _frame(points: Tensor, weights: Tensor) -> Tensor:
    """Return the principal axes as the columns of a rotation matrix."""
    axes = torch.linalg.eigh((weights.unsqueeze(-1) * points).mT @ points).eigenvectors
    return axes * torch.linalg.det(axes)  # an odd dimension: a change of all signs
