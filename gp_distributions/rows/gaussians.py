"""The layout of rows that hold Gaussians, or mixtures of Gaussians, in ``d`` dimensions.

The row of a Gaussian is its mean followed by its row-major covariance, without a weight or padding. The
row of a mixture lists its components one after the other; each component is a Gaussian followed by its
weight. Components of weight zero are padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.rows.clouds import join_rows, split_rows


def join_gaussians(mean: Tensor, covariance: Tensor) -> Tensor:
    """Convert Gaussians to rows.

    Args:
        mean: A ``batch_shape x d`` tensor of means.
        covariance: A ``batch_shape x d x d`` tensor of covariances.

    Returns:
        A ``batch_shape x (d+d*d)`` tensor.
    """
    return torch.cat([mean, covariance.flatten(-2)], dim=-1)


def split_gaussians(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return views of the means and covariances in rows: the inverse of :func:`join_gaussians`.

    Args:
        rows: A ``batch_shape x (d+d*d)`` tensor.
        dim: Dimension ``d`` of the space.

    Returns:
        The means, ``batch_shape x d``, and covariances, ``batch_shape x d x d``.

    Raises:
        ValueError: If the width of the rows is not ``d + d*d``.
    """
    width = dim + dim * dim
    if not rows.dim() or rows.shape[-1] != width:
        raise ValueError(
            f"Expected rows of width dim + dim^2 = {width} (a mean of {dim} coordinates and a "
            f"row-major covariance), got a tensor of shape {tuple(rows.shape)}."
        )
    return rows[..., :dim], rows[..., dim:].unflatten(-1, (dim, dim))


def join_mixtures(mean: Tensor, covariance: Tensor, weights: Tensor) -> Tensor:
    """Convert mixtures to rows.

    Args:
        mean: A ``batch_shape x K x d`` tensor of the components' means.
        covariance: A ``batch_shape x K x d x d`` tensor of the components' covariances.
        weights: A ``batch_shape x K`` tensor of the components' weights.

    Returns:
        A ``batch_shape x K*(d+d*d+1)`` tensor.
    """
    return join_rows(join_gaussians(mean, covariance), weights)


def split_mixtures(rows: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of the components and weights in rows: the inverse of :func:`join_mixtures`.

    Args:
        rows: A ``batch_shape x K*(d+d*d+1)`` tensor.
        dim: Dimension ``d`` of the space.

    Returns:
        The means, ``batch_shape x K x d``, covariances, ``batch_shape x K x d x d``, and weights,
        ``batch_shape x K``.

    Raises:
        ValueError: If the width of the rows is not a positive multiple of ``d + d*d + 1``.
    """
    component = dim + dim * dim + 1
    width = rows.shape[-1] if rows.dim() else 0
    if width == 0 or width % component:
        raise ValueError(
            f"Expected rows whose width is a positive multiple of dim + dim^2 + 1 = {component} "
            f"(each component has a mean of {dim} coordinates, a row-major covariance and a weight), "
            f"got a tensor of shape {tuple(rows.shape)}."
        )
    gaussians, weights = split_rows(rows, component - 1)
    return *split_gaussians(gaussians, dim), weights
