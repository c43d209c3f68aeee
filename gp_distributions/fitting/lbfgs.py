"""Minimisation of a loss by L-BFGS-B, without changing settings of the whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from botorch.optim.closures.core import NdarrayOptimizationClosure
from botorch.optim.utils.numpy_utils import get_bounds_as_ndarray
from numpy.typing import NDArray
from scipy.optimize import LbfgsInvHessProduct, OptimizeResult, minimize
from torch import Tensor


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation.

    Attributes:
        loss: The final loss.
        converged: Whether the optimiser converged.
        message: Its message.
        metric: Its estimate of the inverse Hessian matrix, if it has one.
    """

    loss: float
    converged: bool
    message: str
    metric: LbfgsInvHessProduct | None = None


def minimise(
    closure: Callable[[], tuple[Tensor, Sequence[Tensor | None]]],
    parameters: dict[str, Tensor],
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None,
    *,
    callback: Callable[[float], None] | None = None,
    metric: LbfgsInvHessProduct | None = None,
    options: dict[str, Any] | None = None,
) -> Minimum:
    """Minimise a loss over parameters, in place.

    BoTorch's ``scipy_minimize`` does the same, but changes the warning filters, which all threads share.

    Args:
        closure: Function without arguments that returns the loss and its gradients.
        parameters: Parameters by name.
        bounds: Lower and upper bounds of parameters, by parameter name.
        callback: Function that is called with the loss after each step, when the parameters have the
            values of that step.
        metric: Estimate of the inverse Hessian matrix, such as the ``metric`` of the minimum of a
            similar loss. It saves the steps in which the optimiser would learn it. Not used with bounds,
            or if it is not positive definite in floating point.
        options: Options of ``scipy.optimize.minimize`` with L-BFGS-B.

    Returns:
        The result of the minimisation. The parameters keep the values at which it stopped.
    """
    flat = NdarrayOptimizationClosure(closure, parameters)
    box = None if bounds is None else get_bounds_as_ndarray(parameters, dict(bounds))
    scaled = _Scaled(flat, metric if box is None else None)

    def after_step(intermediate_result: OptimizeResult) -> None:
        flat.state = scaled.point(intermediate_result.x)
        if callback is not None:
            callback(float(intermediate_result.fun))

    found = minimize(
        scaled,
        scaled.start,
        jac=True,
        method="L-BFGS-B",
        bounds=box,
        callback=after_step,
        options=options,
    )
    flat.state = scaled.point(found.x)
    return Minimum(float(found.fun), bool(found.success), str(found.message), found.hess_inv)


def _root(metric: LbfgsInvHessProduct) -> NDArray[np.float64] | None:
    """Return the Cholesky factor of a metric, or None if rounding has made the metric indefinite."""
    try:
        return np.linalg.cholesky(metric.todense())
    except np.linalg.LinAlgError:
        return None


class _Scaled:
    """A loss in coordinates in which its Hessian matrix is about a multiple of the identity.

    The first step of L-BFGS-B has length one, whatever the gradient. The unit of the coordinates is
    therefore the length of a Newton step from the start.
    """

    def __init__(
        self, flat: NdarrayOptimizationClosure, metric: LbfgsInvHessProduct | None
    ) -> None:
        self.flat = flat
        self.origin: NDArray[np.float64] = flat.state
        self.root = None if metric is None else _root(metric)
        self.start = self.origin if self.root is None else np.zeros_like(self.origin)
        self.unit: float | None = None

    def point(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the parameters at the given coordinates."""
        if self.root is None:
            return coordinates
        return self.origin + (self.unit or 1.0) * (self.root @ coordinates)

    def __call__(self, coordinates: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the loss and its gradient."""
        loss, gradient = self.flat(self.point(coordinates))
        if self.root is None:
            return loss, gradient
        gradient = self.root.T @ gradient
        if self.unit is None:
            self.unit = min(1.0, float(np.linalg.norm(gradient))) or 1.0
        return loss, self.unit * gradient
