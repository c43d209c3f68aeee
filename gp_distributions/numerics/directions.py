"""Directions on the unit sphere: those that integrate even functions well, and random ones."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

# The cost of the energy is quadratic in the number of directions; with more, it would take seconds.
_MAX_OPTIMISED = 512


def sphere_directions(dim: int, num_directions: int, *, seed: int = 0) -> Tensor:
    r"""Unit vectors spread over the projective sphere, where ``u`` and ``-u`` are one point.

    - ``dim = 1``: one direction, whatever ``num_directions`` is, since there is no other.
    - ``dim = 2``: equispaced angles, :math:`(k + 1/2) \pi / L`.
    - ``dim >= 3``, up to 512 directions: a minimum of the Riesz energy
      :math:`\sum_{i<j} 1 / |u_i - u_j| + 1 / |u_i + u_j|`, found by L-BFGS from a seeded start.
    - ``dim >= 3``, more directions: random orthonormal bases; the last one is truncated if
      ``num_directions`` is not a multiple of ``dim``.

    Args:
        dim: Dimension ``d`` of the space.
        num_directions: Number ``L`` of directions.
        seed: Random seed for the start or for the bases.

    Returns:
        An ``L x d`` tensor in double precision.

    Raises:
        ValueError: If ``dim`` or ``num_directions`` is less than one.
    """
    _check_counts(dim, num_directions)
    if dim == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    if dim == 2:
        steps = torch.arange(num_directions, dtype=torch.float64) + 0.5
        angles = steps * (math.pi / num_directions)
        return torch.stack([angles.cos(), angles.sin()], dim=-1)
    construct = _least_energy if num_directions <= _MAX_OPTIMISED else _orthonormal_bases
    return torch.from_numpy(construct(dim, num_directions, seed).copy())


def random_directions(dim: int, num_directions: int, *, seed: int = 0) -> Tensor:
    """Independent unit vectors, uniform on the sphere; in one dimension, the only direction.

    Args:
        dim: Dimension ``d`` of the space.
        num_directions: Number ``L`` of directions.
        seed: Random seed.

    Returns:
        An ``L x d`` tensor in double precision, or ``1 x 1`` in one dimension.

    Raises:
        ValueError: If ``dim`` or ``num_directions`` is less than one.
    """
    _check_counts(dim, num_directions)
    if dim == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    normal = np.random.default_rng(seed).standard_normal((num_directions, dim))
    return torch.from_numpy(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def _check_counts(dim: int, num_directions: int) -> None:
    if dim < 1 or num_directions < 1:
        raise ValueError(
            f"Expected dim >= 1 and num_directions >= 1, got {dim} and {num_directions}."
        )


def _orthonormal_bases(dim: int, num_directions: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((-(-num_directions // dim), dim, dim))
    bases: NDArray[np.float64] = np.linalg.qr(normal)[0]
    return bases.reshape(-1, dim)[:num_directions]


@functools.lru_cache(maxsize=32)
def _least_energy(dim: int, num_directions: int, seed: int) -> NDArray[np.float64]:
    def energy(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        free = flat.reshape(num_directions, dim)
        norms = np.linalg.norm(free, axis=1, keepdims=True)
        units = free / norms
        cosines = units @ units.T
        np.fill_diagonal(cosines, 0.0)
        # The floors keep coincident directions finite; at a minimum no pair is close to them.
        near = np.maximum(2.0 - 2.0 * cosines, 1e-12)
        far = np.maximum(2.0 + 2.0 * cosines, 1e-12)
        pairs = near**-0.5 + far**-0.5
        slopes = near**-1.5 - far**-1.5
        np.fill_diagonal(pairs, 0.0)
        np.fill_diagonal(slopes, 0.0)
        gradient = slopes @ units
        gradient -= np.sum(gradient * units, axis=1, keepdims=True) * units
        return 0.5 * float(pairs.sum()), (gradient / norms).ravel()

    start = _orthonormal_bases(dim, num_directions, seed)
    # Vectors of different bases may nearly coincide; the perturbation separates them.
    start = start + 0.1 * np.random.default_rng(seed + 1).standard_normal(start.shape)
    # L-BFGS may leave the sphere, as the energy does not depend on the norms.
    found = minimize(energy, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    directions: NDArray[np.float64] = found.x.reshape(num_directions, dim)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions.setflags(write=False)
    return directions
