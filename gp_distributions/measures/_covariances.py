"""Validation and square roots of covariance matrices, and the covariances of weighted atoms."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.measures._validation import Name, check_entries, first_true


def validated_covariance(covariance: Tensor, name: Name) -> Tensor:
    """Check that covariance matrices are finite, symmetric and positive semi-definite, up to rounding.

    The tolerance is ``1000 d`` times the machine epsilon, relative to the largest entry for symmetry
    and to the largest eigenvalue for definiteness.

    Args:
        covariance: A ``batch_shape x d x d`` tensor.
        name: Names of the distributions in error messages.

    Returns:
        The symmetric parts of the matrices, differentiable in ``covariance``.

    Raises:
        ValueError: If a matrix is not finite, symmetric and positive semi-definite.
    """
    finite = covariance.isfinite()
    check_entries(finite, covariance, name, "a finite covariance", " in entry ({}, {})")
    values = covariance.detach()
    rounding = 1000 * values.shape[-1] * torch.finfo(values.dtype).eps
    bad = (values - values.mT).abs() > rounding * values.abs().amax((-2, -1), keepdim=True)
    if bad.any():
        *index, row, column = first_true(bad)
        matrix = values[tuple(index)]
        raise ValueError(
            f"{name(tuple(index))}: expected a symmetric covariance, got {matrix[row, column]} in "
            f"entry ({row}, {column}) and {matrix[column, row]} in entry ({column}, {row})."
        )
    symmetric = (covariance + covariance.mT) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric.detach())
    bad = eigenvalues[..., 0] < -rounding * eigenvalues[..., -1]
    if bad.any():
        index = first_true(bad)
        low, high = eigenvalues[tuple(index)][[0, -1]].tolist()
        raise ValueError(
            f"{name(tuple(index))}: expected a positive semi-definite covariance, got one with "
            f"eigenvalues from {low} to {high}."
        )
    return symmetric


def symmetric_root(covariance: Tensor) -> Tensor:
    """Return the symmetric positive semi-definite square root of each matrix, without a gradient.

    This root is unique, whereas a factor made of eigenvectors is not.
    """
    eigenvalues, vectors = torch.linalg.eigh(covariance.detach())
    return (vectors * eigenvalues.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT


def weighted_moments(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean ``m`` and the covariance ``sum_i w_i (x_i - m)(x_i - m)'`` of weighted atoms.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights that sum to one.

    Returns:
        The ``batch_shape x d`` means and the ``batch_shape x d x d`` covariances.
    """
    mean = (weights.unsqueeze(-2) @ points).squeeze(-2)
    centred = points - mean.unsqueeze(-2)
    covariance = centred.mT @ (weights.unsqueeze(-1) * centred)
    return mean, (covariance + covariance.mT) / 2
