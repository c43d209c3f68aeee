"""Covariance matrices: what makes them valid, their roots, and those of weighted atoms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def validated_covariance(covariance: Tensor, name: Callable[[tuple[int, ...]], str]) -> Tensor:
    """Check that matrices are finite, symmetric and positive semi-definite, within rounding.

    Rounding is taken as ``1000 d`` times the machine epsilon, relative to the largest entry for
    symmetry and to the largest eigenvalue for definiteness.

    Args:
        covariance: A ``batch_shape x d x d`` tensor.
        name: What error messages call the matrix at an index into the batch axes.

    Returns:
        The symmetric parts, differentiable in ``covariance``.

    Raises:
        ValueError: If a matrix is not valid.
    """
    check_finite(covariance, "covariance", name, axes=2)
    values = covariance.detach()
    rounding = 1000 * values.shape[-1] * torch.finfo(values.dtype).eps
    asymmetry = (values - values.mT).abs()
    bad = asymmetry > rounding * values.abs().amax((-2, -1), keepdim=True)
    if bad.any():
        *index, row, column = bad.nonzero()[0].tolist()
        matrix = values[tuple(index)]
        raise ValueError(
            f"{name(tuple(index))}: expected a symmetric covariance, got {matrix[row, column]} in "
            f"entry ({row}, {column}) and {matrix[column, row]} in entry ({column}, {row})."
        )
    symmetric = (covariance + covariance.mT) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric.detach())
    bad = eigenvalues[..., 0] < -rounding * eigenvalues[..., -1]
    if bad.any():
        index = bad.nonzero()[0].tolist()
        low, high = eigenvalues[tuple(index)][[0, -1]].tolist()
        raise ValueError(
            f"{name(tuple(index))}: expected a positive semi-definite covariance, got the eigenvalue "
            f"{low}, the largest being {high}."
        )
    return symmetric


def check_finite(
    values: Tensor, noun: str, name: Callable[[tuple[int, ...]], str], *, axes: int
) -> None:
    """Check that means or covariances are finite.

    Args:
        values: A ``batch_shape x d`` tensor, or ``batch_shape x d x d``.
        noun: What they are.
        name: What error messages call that at an index into the batch axes.
        axes: The number of axes beyond those: 1 or 2.

    Raises:
        ValueError: If an entry is not finite.
    """
    bad = ~values.isfinite()
    if bad.any():
        index = tuple(bad.nonzero()[0].tolist())
        batch, entry = index[:-axes], index[-axes:]
        where = f"coordinate {entry[0]}" if axes == 1 else f"entry {entry}"
        raise ValueError(
            f"{name(batch)}: expected a finite {noun}, got {values[index].item()} in {where}."
        )


def symmetric_root(covariance: Tensor) -> Tensor:
    """The symmetric positive semi-definite root of each matrix; without a gradient.

    It is unique, where a factor from eigenvectors is not.
    """
    eigenvalues, vectors = torch.linalg.eigh(covariance.detach())
    return (vectors * eigenvalues.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT


def weighted_moments(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of weighted atoms, ``sum_i w_i (x_i - m)(x_i - m)'``.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights that sum to one.

    Returns:
        Means, ``batch_shape x d``, and covariances, ``batch_shape x d x d``.
    """
    mean = (weights.unsqueeze(-2) @ points).squeeze(-2)
    centred = points - mean.unsqueeze(-2)
    covariance = centred.mT @ (weights.unsqueeze(-1) * centred)
    return mean, (covariance + covariance.mT) / 2
