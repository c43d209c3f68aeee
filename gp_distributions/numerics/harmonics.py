"""Quadratures on the circle and the sphere that use half of the directions."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import sph_harm_y
from torch import Tensor


def circle_harmonics(num_directions: int, max_degree: int) -> tuple[Tensor, Tensor]:
    """Directions on half of the circle, with the Fourier series of each degree.

    Args:
        num_directions: Number ``L`` of directions, at equal angles on the half circle.
        max_degree: Highest degree.

    Returns:
        An ``L x 2`` tensor of directions, and a ``2 (max_degree + 1) x L`` tensor with two rows for
        each degree: the cosine and the negative sine at the directions, divided by ``L``. A product
        with this tensor is a mean over the half circle.
    """
    angles = torch.arange(num_directions, dtype=torch.float64) * (math.pi / num_directions)
    directions = torch.stack([angles.cos(), angles.sin()], dim=-1)
    phases = torch.arange(max_degree + 1, dtype=torch.float64).unsqueeze(-1) * angles
    series = torch.stack([phases.cos(), -phases.sin()], dim=1).flatten(0, 1)
    return directions, series / num_directions


def sphere_harmonics(num_directions: int, max_degree: int) -> tuple[Tensor, Tensor]:
    """Directions on half of the sphere, with real spherical harmonics of each degree.

    Args:
        num_directions: Number ``L`` of directions, rounded up to a square. The directions are the
            product of a Gauss-Legendre rule in the polar angle and equal angles on half of the circle.
        max_degree: Highest degree.

    Returns:
        An ``L x 3`` tensor of directions, and a ``(max_degree + 1)^2 x L`` tensor with ``2 l + 1``
        rows for each degree ``l``: the harmonics times the weights of the rule. The harmonics
        are orthonormal with respect to the uniform probability measure on the sphere.
    """
    size = math.isqrt(num_directions - 1) + 1
    heights, shares = np.polynomial.legendre.leggauss(size)
    polar, azimuth = np.meshgrid(
        np.arccos(heights), np.arange(size) * (np.pi / size), indexing="ij"
    )
    weights = np.repeat(shares / 2, size) / size
    polar, azimuth = polar.ravel(), azimuth.ravel()
    points = np.stack(
        [np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], axis=-1
    )
    rows = []
    for degree in range(max_degree + 1):
        for order in range(-degree, degree + 1):
            values = sph_harm_y(degree, abs(order), polar, azimuth)
            part = values.imag if order < 0 else values.real
            rows.append(part * (math.sqrt(2) if order else 1.0))
    harmonics = math.sqrt(4 * math.pi) * np.stack(rows) * weights
    return torch.from_numpy(points), torch.from_numpy(harmonics)
