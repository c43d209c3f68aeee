"""Find the cloud whose features are nearest to given features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

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

    def residual(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        flat = torch.from_numpy(values).to(points).requires_grad_()
        x, w = cloud(flat)
        squared = (embed(x.unsqueeze(0), w.unsqueeze(0)).squeeze(0) - target).square().sum()
        squared = squared / unit.square()
        (gradient,) = torch.autograd.grad(squared, flat)
        return squared.item(), gradient.double().cpu().numpy()

    goal = (enough / unit.item()) ** 2

    def descend(start: NDArray[np.float64], iterations: int) -> Any:
        losses: list[float] = []

        def stop(intermediate_result: Any) -> None:
            losses.append(intermediate_result.fun)
            before = losses[-_WINDOW - 1] if len(losses) > _WINDOW else math.inf
            if losses[-1] <= goal or losses[-1] > (1 - _GAIN) * before:
                raise StopIteration

        limits = {"maxiter": iterations, "maxfun": 5 * iterations}
        # L-BFGS keeps many corrections, as features have more values than a cloud has coordinates.
        options = {**limits, "maxcor": 30, "ftol": 1e-12, "gtol": 1e-12}
        return scipy.optimize.minimize(
            residual, start, jac=True, method="L-BFGS-B", callback=stop, options=options
        )

    values = shape.flatten().double().cpu().numpy()
    reached, _ = residual(values)
    if max_iterations > 0 and reached > goal:
        settling = min(_SETTLING, max_iterations) if learn_weights else max_iterations
        found = descend(values, settling)
        if learn_weights and found.fun > goal and max_iterations > settling:
            found = descend(np.append(found.x, np.zeros(size)), max_iterations - settling)
        values, reached = found.x, found.fun
    x, w = cloud(torch.from_numpy(values).to(points))
    return x, w, float(reached**0.5 * unit.item())
