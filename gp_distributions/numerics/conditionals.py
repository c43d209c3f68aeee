"""Densities of jointly normal variables, given others of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def conditional_log_densities(
    errors: Tensor,
    across: Tensor,
    variances: Tensor,
    noise: Tensor,
    *,
    given: Tensor,
    factor: Tensor,
) -> Tensor:
    r"""Log density of each of some noisy values of a Gaussian process, given others.

    With the errors :math:`e` of the given values, their covariance matrix :math:`K` and the covariances
    :math:`c_i` of value :math:`i` with them, the error :math:`e_i` has the distribution

    .. math::
        e_i \mid e \sim N(c_i^\top K^{-1} e,\; v_i - c_i^\top K^{-1} c_i + \sigma_i^2).

    Args:
        errors: Differences :math:`e_i` of the values from their prior means, ``batch_shape x M``.
        across: Covariances :math:`c_i`, ``batch_shape x N x M``.
        variances: Prior variances :math:`v_i` of the function, ``batch_shape x M``.
        noise: Noise variances :math:`\sigma_i^2`, ``batch_shape x M``.
        given: Differences :math:`e` of the given values from their prior means, ``batch_shape x N``.
        factor: Lower Cholesky factor of :math:`K`, noise included, ``batch_shape x N x N``.

    Returns:
        A ``batch_shape x M`` tensor.

    Source: Rasmussen and Williams 2006, eq. 2.22 to 2.24.
    """
    solved = torch.cholesky_solve(across, factor)
    mean = (solved.mT @ given.unsqueeze(-1)).squeeze(-1)
    variance = (variances - (across * solved).sum(-2)).clamp_min(0) + noise
    return -0.5 * ((2 * math.pi * variance).log() + (errors - mean).square() / variance)
