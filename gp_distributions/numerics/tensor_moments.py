r"""Moments up to order three as features of the mean embeddings of polynomial kernels.

The inner products of these features equal those of the mean embeddings:

.. math::
    \mathrm E (\langle X, Y \rangle + 1)^p = \sum_{k=0}^p \binom p k
    \langle \mathrm E X^{\otimes k}, \mathrm E Y^{\otimes k} \rangle.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def moment_features(
    points: Tensor, weights: Tensor, degree: int, covariance: Tensor | None = None
) -> Tensor:
    """Compute the mean embeddings of a polynomial kernel as vectors of moments.

    Args:
        points: A ``C x n x d`` tensor of atoms, or of the means of Gaussian components.
        weights: A ``C x n`` tensor of weights that sum to one.
        degree: 1 for the linear kernel ``<x, y>``; 2 or 3 for ``(<x, y> + 1)^degree``.
        covariance: A ``C x n x d x d`` tensor, the covariances of Gaussian components.

    Returns:
        A ``C x d`` tensor for degree 1, otherwise a ``C x (1 + d + ... + d^degree)`` tensor.
    """
    weighted = weights.unsqueeze(-1) * points
    mean = weighted.sum(-2)
    if degree == 1:
        return mean
    second = points.unsqueeze(-1) * points.unsqueeze(-2)
    if covariance is not None:
        second = second + covariance
    moments = [torch.ones_like(mean[..., :1]), mean]
    moments.append(torch.einsum("cn,cnab->cab", weights, second).flatten(-2))
    if degree == 3:
        third = torch.einsum("cna,cnbe->cabe", weighted, second)
        if covariance is not None:  # E X_a X_b X_c has a term m_a S_bc for each of a, b and c
            product = torch.einsum("cna,cnbe->cabe", weighted, covariance)
            third = third + product.permute(0, 2, 1, 3) + product.permute(0, 2, 3, 1)
        moments.append(third.flatten(-3))
    roots = [math.sqrt(math.comb(degree, k)) for k in range(degree + 1)]
    return torch.cat([root * moment for root, moment in zip(roots, moments, strict=True)], dim=-1)
