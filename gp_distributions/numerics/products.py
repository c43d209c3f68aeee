"""Symmetric products of columns at half the cost of a matrix product."""

from __future__ import annotations

import torch
from scipy.linalg import get_blas_funcs
from torch import Tensor

from gp_distributions.numerics.pairwise import mirrored


def column_products(columns: Tensor) -> Tensor:
    """Return the exactly symmetric matrix ``columns^T columns``, without gradients.

    Args:
        columns: An ``N x K`` tensor.

    Returns:
        A ``K x K`` tensor.
    """
    if columns.device.type != "cpu":
        return mirrored(columns.mT @ columns)
    array = columns.detach().contiguous().numpy()
    syrk = get_blas_funcs("syrk", dtype=array.dtype)
    # BLAS stores matrices by columns: the lower half of its result is the upper half of this one.
    return mirrored(torch.from_numpy(syrk(1.0, array.T, lower=1).T))
