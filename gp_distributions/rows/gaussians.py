"""The layout of rows that hold Gaussians, or mixtures of Gaussians, in ``d`` dimensions.

A Gaussian is its mean, then its covariance row by row; it has neither weight nor padding. A mixture is
a cloud of Gaussians: its components in turn, each followed by its weight, those of weight zero padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.rows.clouds import join_rows, split_rows


def join_gaussians(mean: Tensor, covariance: Tensor) -> Tensor:
    """Lay Gaussians out as rows.

    Args:
        mean: A ``batch_shape x d`` tensor.
        covariance: A ``batch_shape x d x d`` tensor.

    Returns:
        A ``batch_shape x (d+d*d)`` tensor.
    """
    return torch.cat([mean, covariance.flatten(-2)], dim=-1)


def split_gaussians(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Read Gaussians back as views: the inverse of :func:`join_gaussians`.

    Args:
        rows: A ``batch_shape x (d+d*d)`` tensor.
        dim: The dimension ``d``.

    Returns:
        Means, ``batch_shape x d``, and covariances, ``batch_shape x d x d``.

    Raises:
        ValueError: If the rows have another width.
    """
    width = dim + dim * dim
    if not rows.dim() or rows.shape[-1] != width:
        raise ValueError(
            f"Expected rows of width dim + dim^2 = {width} (a mean of {dim} coordinates, then the "
            f"covariance row by row), got a tensor of shape {tuple(rows.shape)}."
        )
    return rows[..., :dim], rows[..., dim:].unflatten(-1, (dim, dim))


def join_mixtures(mean: Tensor, covariance: Tensor, weights: Tensor) -> Tensor:
    """Lay mixtures out as rows.

    Args:
        mean: A ``batch_shape x K x d`` tensor.
        covariance: A ``batch_shape x K x d x d`` tensor.
        weights: A ``batch_shape x K`` tensor.

    Returns:
        A ``batch_shape x K*(d+d*d+1)`` tensor.
    """
    return join_rows(join_gaussians(mean, covariance), weights)


def split_mixtures(rows: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Read mixtures back as views: the inverse of :func:`join_mixtures`.

    Args:
        rows: A ``batch_shape x K*(d+d*d+1)`` tensor.
        dim: The dimension ``d``.

    Returns:
        Means, ``batch_shape x K x d``, covariances, ``batch_shape x K x d x d``, and weights,
        ``batch_shape x K``.

    Raises:
        ValueError: If the width of the rows is no positive multiple of ``d + d*d + 1``.
    """
    component = dim + dim * dim + 1
    width = rows.shape[-1] if rows.dim() else 0
    if width == 0 or width % component:
        raise ValueError(
            f"Expected rows whose width is a positive multiple of dim + dim^2 + 1 = {component} "
            f"(each component is a mean of {dim} coordinates, the covariance row by row, and a "
            f"weight), got a tensor of shape {tuple(rows.shape)}."
        )
    gaussians, weights = split_rows(rows, component - 1)
    return *split_gaussians(gaussians, dim), weights
