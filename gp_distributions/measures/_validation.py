"""Validation of atoms, weights and covariances, once, where they enter a container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from gp_distributions.measures.arrays import Labels
from gp_distributions.rows.tensors import copy_filled, filled, is_wide, untouched_zeros

# A function that maps an index into the batch axes to the distribution's name in error messages.
Name: TypeAlias = Callable[[tuple[int, ...]], str]
# Atoms, weights that sum to one, and the masses of clouds, the sums of the weights before.
Clouds: TypeAlias = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Wording:
    """Names of clouds and their weights in error messages.

    Attributes:
        noun: The word for what the caller passed: a bag, an image, a curve or a mesh.
        weights: The word for the weights: weights, intensities, arc lengths or areas.
        labels: Labels of the clouds, of shape ``batch_shape``, or None.
    """

    noun: str = "Bag"
    weights: str = "weights"
    labels: Labels | None = None

    def __call__(self, index: tuple[int, ...]) -> str:
        """Return the name of the cloud at the given index into the batch axes."""
        if not index:
            return f"The {self.noun.lower()}"
        label = "" if self.labels is None else f" (label {self.labels[index]})"
        return f"{self.noun} {index[0] if len(index) == 1 else index}{label}"


def validated(points: Tensor, weights: Tensor, wording: Wording) -> Clouds:
    """Validate atoms and weights, and divide the weights of each cloud by their sum.

    Args:
        points: A ``batch_shape x n x d`` tensor of atoms.
        weights: A ``batch_shape x n`` tensor of weights.
        wording: Names of the clouds in error messages.

    Returns:
        The points unchanged, weights that sum to one, and the ``batch_shape`` sums by which they were
        divided, differentiable in ``weights``.

    Raises:
        ValueError: If a coordinate is not finite, a weight is negative or not finite, or the
            weights of a cloud are all zero.
    """
    # A sum is finite only if all its terms are, and takes no memory for a mask.
    if not points.detach().sum().isfinite():
        where = " in atom {}, coordinate {}"
        check_entries(points.isfinite(), points, wording, "finite coordinates", where)
    if not weights.detach().sum().isfinite() or (weights < 0).any():
        valid = weights.isfinite() & (weights >= 0)
        check_entries(valid, weights, wording, f"finite {wording.weights} >= 0", " in atom {}")
    # The order of summation depends on the strides; contiguous rows make equal weights stay equal.
    total = weights.contiguous().sum(-1, keepdim=True)
    valid = total.isfinite() & (total > 0)
    expected = f"{wording.weights} with a positive, finite sum"
    check_entries(valid[..., 0], total[..., 0], wording, expected, "")
    # A sum within rounding of one counts as one: normalising twice changes nothing.
    rounding = 32 * torch.finfo(weights.dtype).eps
    error = torch.where((total - 1).abs() <= rounding, total - 1, 0.0).detach()
    if is_wide(weights):
        shares = untouched_zeros(tuple(weights.shape), weights)
        copy_filled(weights, shares)
        for row, sum_of in zip(shares.flatten(0, -2), (total - error).flatten(), strict=True):
            row[: filled(row)] /= sum_of
        return points, shares, total.squeeze(-1)
    return points, weights / (total - error), total.squeeze(-1)


def check_entries(valid: Tensor, values: Tensor, name: Name, expected: str, where: str) -> None:
    """Raise an error that names the first invalid entry, if there is one.

    Args:
        valid: A tensor of booleans in the shape of ``values``.
        values: A tensor whose first axes are the batch axes.
        name: Names of the distributions in error messages.
        expected: What the error message says was expected of each entry.
        where: Description of an entry's place, with one ``{}`` for each axis of ``values`` after the
            batch axes.

    Raises:
        ValueError: If an entry is not valid.
    """
    if not valid.all():
        index = tuple((~valid).nonzero()[0].tolist())
        batch = len(index) - where.count("{}")
        raise ValueError(
            f"{name(index[:batch])}: expected {expected}, got {values[index].item()}"
            f"{where.format(*index[batch:])}."
        )


def equal_weights(points: Tensor) -> Tensor:
    """Return ``batch_shape x n`` weights of ``1 / n`` for a ``batch_shape x n x d`` tensor of atoms."""
    return points.new_full(points.shape[:-1], 1 / points.shape[-2])


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
    allowed = rounding * values.abs().amax((-2, -1), keepdim=True)
    asymmetry = values - values.mT
    expected, where = "a symmetric covariance, with differences of 0", " in entry ({}, {})"
    check_entries(asymmetry.abs() <= allowed, asymmetry, name, expected, where)
    symmetric = (covariance + covariance.mT) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric.detach())
    low, high = eigenvalues[..., 0], eigenvalues[..., -1]
    expected = "a positive semi-definite covariance, whose eigenvalues are >= 0"
    check_entries(low >= -rounding * high, low, name, expected, "")
    return symmetric
