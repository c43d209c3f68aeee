"""Minimisation of a loss by L-BFGS-B, without changing settings of the whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botorch.optim.closures.core import NdarrayOptimizationClosure
from botorch.optim.utils.numpy_utils import get_bounds_as_ndarray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation: the final loss, whether the optimiser converged, and its message."""

    loss: float
    converged: bool
    message: str


def minimise(
    closure: Callable[[], tuple[Tensor, Sequence[Tensor | None]]],
    parameters: dict[str, Tensor],
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None,
    *,
    callback: Callable[[float], None] | None = None,
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
        options: Options of ``scipy.optimize.minimize`` with L-BFGS-B.

    Returns:
        The result of the minimisation. The parameters keep the values at which it stopped.
    """
    flat = NdarrayOptimizationClosure(closure, parameters)

    def after_step(intermediate_result: OptimizeResult) -> None:
        flat.state = intermediate_result.x
        if callback is not None:
            callback(float(intermediate_result.fun))

    found = minimize(
        flat,
        flat.state,
        jac=True,
        method="L-BFGS-B",
        bounds=None if bounds is None else get_bounds_as_ndarray(parameters, dict(bounds)),
        callback=after_step,
        options=options,
    )
    flat.state = found.x
    return Minimum(float(found.fun), bool(found.success), str(found.message))
