"""Checks that the squares of coordinates and distances neither overflow nor underflow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.measures.targets import safe_range
from gp_distributions.rows.clouds import drop_copies


def check_coordinates(distance: Distance, rows: Tensor) -> None:
    """Check that the squared coordinates of training clouds neither overflow nor underflow.

    Args:
        distance: Distance that reads the rows.
        rows: A ``batch_shape x N x width`` tensor of the columns that the distance reads.

    Raises:
        ValueError: If they do.
    """
    if not distance.reads_coordinates:
        return
    atoms, _ = distance.block.split(drop_copies(rows.detach()))
    largest = max(map(abs, torch.stack(atoms[..., : distance.dim].aminmax()).tolist()))
    if atoms.shape[-1] > distance.dim:  # entries of covariance matrices
        largest = max(largest, math.sqrt(atoms[..., distance.dim :].max().item()))
    low, high = safe_range(rows.dtype)
    if largest and not low <= largest <= high:
        _raise("underflow" if largest < low else "overflow", largest, rows.dtype)


def check_distances(distance: Distance, rows: Tensor, squared: Tensor) -> None:
    """Check that squared distances between training clouds do not overflow.

    Args:
        distance: Distance that reads the rows.
        rows: A ``batch_shape x N x width`` tensor of the columns that the distance reads.
        squared: The ``batch_shape x N x N`` squared distances between the rows.

    Raises:
        ValueError: If they do.
    """
    if not squared.max().item() <= safe_range(rows.dtype)[1] ** 2:  # or NaN
        atoms, _ = distance.block.split(rows.detach())
        _raise("overflow", atoms.abs().max().item(), rows.dtype)


def _raise(verb: str, largest: float, dtype: torch.dtype) -> None:
    raise ValueError(
        f"The squared distances between the training clouds {verb} in {dtype} (largest coordinate "
        f"{largest:.3g}). Scale the clouds, for example with X.normalize(scale={largest:.0e}) or with "
        f"input_transform=NormalizeClouds.from_data(X, scale={largest:.0e})."
    )
