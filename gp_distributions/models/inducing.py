"""Choice of inducing clouds out of a sample of the training clouds."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.kernels.covariances import covariance
from gp_distributions.models.collapsed import InducingFeatures
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.numerics.sampling import choose_pivots

# The covariance of candidates is computed for so many clouds at a time.
_BLOCK = 2048
# Jitter of the inducing covariance matrix: a share of the smallest noise variance, within two shares of
# the mean prior variance. Rounding errors need the lower one.
_JITTER, _LEAST_JITTER, _MOST_JITTER = 1e-8, {torch.float64: 1e-12, torch.float32: 1e-7}, 1e-6
#: The precisions in which features can be computed.
FEATURE_DTYPES = tuple(_LEAST_JITTER)


def choose_features(
    covar_module: Kernel,
    rows: Tensor,
    count: int,
    *,
    noise: float,
    dtype: torch.dtype,
    seed: int,
) -> InducingFeatures:
    """Choose inducing clouds at the current hyperparameters, and factorise their covariance.

    Args:
        covar_module: A kernel on rows.
        rows: The rows of the candidates, ``N x width``.
        count: Largest number of inducing clouds. If there are at most as many candidates, all of them
            are inducing.
        noise: The smallest noise variance.
        dtype: The precision of the features.
        seed: Random seed.

    Returns:
        The features.
    """
    variances = covariance(covar_module, rows, diag=True)
    level = max(float(variances.mean()), torch.finfo(torch.float64).tiny)
    jitter = min(max(_JITTER * noise, _LEAST_JITTER[dtype] * level), _MOST_JITTER * level)
    if len(rows) > count:
        parts = [EmbeddedRows(part) for part in rows.split(_BLOCK)]

        def covariances(first: Tensor | None, second: Tensor) -> Tensor:
            chosen = rows[second]
            if first is not None:
                return covariance(covar_module, rows[first], chosen)
            return torch.cat([covariance(covar_module, part, chosen) for part in parts])

        rows = rows[choose_pivots(covariances, variances, count, tolerance=jitter, seed=seed)]
    matrix = covariance(covar_module, rows)
    matrix.diagonal().add_(jitter)
    # In the layout that it has after it was saved, for equal bits.
    return InducingFeatures(covar_module, rows, cholesky(matrix).contiguous(), dtype)
