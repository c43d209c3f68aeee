"""The pose, and the cloud, that are nearest to a target: best rotations, and clouds from features."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from gp_distributions.numerics.directions import circle_harmonics, sphere_directions
from gp_distributions.numerics.quantiles import weighted_cell_quantiles


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
    directions = circle_harmonics(_ANGLES // 2, 0)[0].to(points)
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

    unit = fixed.square().sum().item() / _DIRECTIONS or 1.0

    def loss(start: Tensor, vector: Tensor) -> Tensor:
        return squared(turned(vector, start)) / unit

    found = []
    for start in starts[order]:
        vector, value = _minimised(partial(loss, start), points.new_zeros(3))
        found.append((value, turned(vector, start)))
    value, rotation = min(found, key=itemgetter(0))
    return rotation, value * unit


def _minimised(
    loss: Callable[[Tensor], Tensor], start: Tensor, **options: Any
) -> tuple[Tensor, float]:
    """Minimise a function of a vector by L-BFGS; return the minimum and its value."""

    def evaluate(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        with torch.enable_grad():
            vector = torch.from_numpy(values).to(start).requires_grad_()
            value = loss(vector)
            (gradient,) = torch.autograd.grad(value, vector)
        return value.item(), gradient.double().cpu().numpy()

    first = start.double().cpu().numpy()
    found = scipy.optimize.minimize(evaluate, first, jac=True, method="L-BFGS-B", **options)
    return torch.from_numpy(found.x).to(start), float(found.fun)


def _frame(points: Tensor, weights: Tensor) -> Tensor:
    """Return the principal axes as the columns of a rotation matrix."""
    axes = torch.linalg.eigh((weights.unsqueeze(-1) * points).mT @ points).eigenvectors
    return axes * torch.linalg.det(axes)  # an odd dimension: a change of all signs


# Number of initial iterations, in which atoms move while weights are fixed.
_SETTLING = 100

# Iterations after which a loss that has fallen by a smaller share ends the search.
_WINDOW, _GAIN = 20, 0.01


def nearest_cloud(
    embed: Callable[[Tensor, Tensor], Tensor],
    target: Tensor,
    points: Tensor,
    weights: Tensor,
    *,
    learn_weights: bool,
    enough: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, float]:
    r"""Find a local minimum of :math:`|\varphi(X, w) - z|^2` over atoms and weights by L-BFGS.

    The weights are the softmax of unconstrained variables. They are learned only after the atoms have
    settled with fixed weights, so that a wrong early match does not take all weight from an atom. The
    optimiser works on coordinates that are centred at the mean of the initial atoms and divided by
    their root mean square radius. It stops where 20 iterations reduce the loss by less than 1%, as
    most features are not those of any cloud.

    Args:
        embed: Differentiable map from ``1 x n x d`` points and ``1 x n`` weights to ``1 x D`` features.
        target: The ``D`` target features :math:`z`.
        points: Initial atoms, ``n x d``.
        weights: Initial weights, ``n``; weights of zero stay zero.
        learn_weights: Whether to optimise the weights too.
        enough: Distance between features and target at which the optimisation stops.
        max_iterations: Maximum number of iterations; with 0, the initial cloud is returned.

    Returns:
        The points, the weights, and the distance of their features from the target.
    """
    size, dim = points.shape
    centre = weights @ points
    unit = (weights @ (points - centre).square().sum(-1)).sqrt()
    unit = torch.where(unit > 0, unit, 1.0)  # coincident atoms have no scale
    shape = (points - centre) / unit
    logits = weights.log()

    def cloud(flat: Tensor) -> tuple[Tensor, Tensor]:
        moved = flat[: size * dim].view(size, dim)
        changed = logits + flat[size * dim :] if len(flat) > size * dim else logits
        return centre + unit * moved, changed.softmax(-1)

    def loss(flat: Tensor) -> Tensor:
        x, w = cloud(flat)
        squares = (embed(x.unsqueeze(0), w.unsqueeze(0)).squeeze(0) - target).square()
        return squares.sum() / unit.square()

    goal = (enough / unit.item()) ** 2

    def descend(start: Tensor, iterations: int) -> tuple[Tensor, float]:
        losses: list[float] = []

        def stop(intermediate_result: Any) -> None:
            losses.append(intermediate_result.fun)
            before = losses[-_WINDOW - 1] if len(losses) > _WINDOW else math.inf
            if losses[-1] <= goal or losses[-1] > (1 - _GAIN) * before:
                raise StopIteration

        limits = {"maxiter": iterations, "maxfun": 5 * iterations}
        # L-BFGS keeps many corrections, as features have more values than a cloud has coordinates.
        options = {**limits, "maxcor": 30, "ftol": 1e-12, "gtol": 1e-12}
        return _minimised(loss, start, callback=stop, options=options)

    flat = shape.flatten()
    reached = loss(flat).item()
    if max_iterations > 0 and reached > goal:
        settling = min(_SETTLING, max_iterations) if learn_weights else max_iterations
        flat, reached = descend(flat, settling)
        if learn_weights and reached > goal and max_iterations > settling:
            flat = torch.cat([flat, torch.zeros_like(weights)])
            flat, reached = descend(flat, max_iterations - settling)
    x, w = cloud(flat)
    return x, w, reached**0.5 * unit.item()
