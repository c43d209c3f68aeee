"""Weights of a mixture of predictive distributions, chosen by their held-out log densities."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

# Weights below this are rounding errors of the optimiser.
_NONE = 1e-7
# Log densities further below the largest of their row do not change the weights.
_LOWEST = -700.0


def stacking_weights(log_densities: Tensor, *, prior: float = 0.0) -> Tensor:
    r"""Compute the weights that maximise the held-out log density of a mixture.

    With :math:`p_{ik}` the density of target ``i`` under model ``k``, which has not seen it, the weights
    solve the convex problem

    .. math::
        \max_{w \ge 0,\ \sum_k w_k = 1}
        \sum_i \log \sum_k w_k\, p_{ik} + \lambda \sum_k \log w_k.

    The second term is the logarithm of a Dirichlet density with the concentrations
    :math:`1 + \lambda`. With :math:`\lambda > 0`, every model keeps a small weight, of at least
    :math:`\lambda / (T + K \lambda)`: a hedge against targets that the models of large weight deem
    impossible, since few held-out targets show no such target. The constraint :math:`\sum_k w_k = 1` is
    replaced by the penalty :math:`-(T + K \lambda) \sum_k w_k`, under which it holds at the maximum.

    Args:
        log_densities: The logarithms of :math:`p_{ik}`, a ``T x K`` tensor. A density may be zero.
        prior: The number :math:`\lambda` of targets, beside the ``T`` that were observed, that each
            model alone predicts.

    Returns:
        The weights, a tensor of length ``K`` in double precision. With ``prior=0``, the weights of
        models that do not improve the mixture are exactly zero.

    Raises:
        ValueError: If a log density is NaN or infinite above zero, every density of a target is zero,
            or ``prior`` is negative.

    Example:
        >>> import torch
        >>> from gp_distributions.numerics.stacking import stacking_weights
        >>> densities = torch.tensor([[0.9, 0.1, 0.2], [0.9, 0.1, 0.2], [0.1, 0.9, 0.2]])
        >>> stacking_weights(densities.log()).round(decimals=3)
        tensor([0.7080, 0.2920, 0.0000], dtype=torch.float64)

    Sources: Yao, Vehtari, Simpson and Gelman 2018, eq. 4; Kim, Carbonetto, Stephens and Anitescu 2020
    (the penalty).
    """
    if not 0 <= prior < math.inf:
        raise ValueError(f"Expected prior >= 0 and finite, got {prior}.")
    values = log_densities.detach().double().cpu().numpy()
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"Expected log densities of shape T x K, got {tuple(values.shape)}.")
    largest = values.max(-1, keepdims=True)
    if not (np.isfinite(largest).all() and not np.isnan(values).any()):
        row = int(np.flatnonzero(~np.isfinite(largest[:, 0]) | np.isnan(values).any(-1))[0])
        raise ValueError(
            f"Expected a finite log density of target {row} under some model, got "
            f"{values[row].tolist()}."
        )
    # A model of density zero keeps a small one, so that the logarithm stays finite on the way.
    densities = np.exp(np.maximum(values - largest, _LOWEST))
    targets, count = values.shape
    share, total = prior / targets, 1 + count * prior / targets
    least = share / total

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        mixture = np.maximum(densities @ weights, math.exp(_LOWEST))
        value = total * weights.sum() - np.log(mixture).mean()
        gradient = total - densities.T @ (1 / mixture) / targets
        if share:
            value -= share * np.log(weights).sum()
            gradient -= share / weights
        return float(value), gradient

    found = minimize(
        loss,
        np.full(count, 1 / count),
        jac=True,
        method="L-BFGS-B",
        bounds=[(least, None)] * count,
        options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30},
    )
    weights = found.x if share else np.where(found.x > _NONE, found.x, 0.0)
    return torch.from_numpy(weights / weights.sum()).to(log_densities.device)
