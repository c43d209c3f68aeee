"""Directions on the sphere, quadratures on circle and sphere, and principal axes of point sets."""

from __future__ import annotations

import functools
import math

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
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
    """
    if dim == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    if dim == 2:
        return _on_circle(_half_circle(num_directions, 0.5))
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
    """
    if dim == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    normal = np.random.default_rng(seed).standard_normal((num_directions, dim))
    return torch.from_numpy(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def random_levels(num_directions: int, num_levels: int, *, seed: int = 0) -> Tensor:
    """Independent levels of quantiles, uniform on (0, 1], anew for each direction.

    Args:
        num_directions: Number ``L`` of directions.
        num_levels: Number ``N`` of levels of each direction.
        seed: Random seed. Draws are independent of :func:`random_directions` with the same seed.

    Returns:
        An ``L x N`` tensor in double precision, whose first columns are those of fewer levels.
    """
    drawn = np.random.default_rng([seed, 1]).random((num_levels, num_directions))
    return torch.from_numpy(1 - drawn.T)


def _orthonormal_bases(dim: int, num_directions: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((-(-num_directions // dim), dim, dim))
    return np.linalg.qr(normal)[0].reshape(-1, dim)[:num_directions]


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
    found = scipy.optimize.minimize(
        energy, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500}
    )
    directions = found.x.reshape(num_directions, dim)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions.setflags(write=False)
    return directions


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
    angles = _half_circle(num_directions)
    phases = torch.arange(max_degree + 1, dtype=torch.float64).unsqueeze(-1) * angles
    series = torch.stack([phases.cos(), -phases.sin()], dim=1).flatten(0, 1)
    return _on_circle(angles), series / num_directions


def _half_circle(count: int, first: float = 0.0) -> Tensor:
    """Return equispaced angles, which begin ``first`` steps after zero."""
    return (torch.arange(count, dtype=torch.float64) + first) * (math.pi / count)


def _on_circle(angles: Tensor) -> Tensor:
    """Return the unit vectors at angles, ``... x 2``."""
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


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
            values = scipy.special.sph_harm_y(degree, abs(order), polar, azimuth)
            part = values.imag if order < 0 else values.real
            rows.append(part * (math.sqrt(2) if order else 1.0))
    harmonics = math.sqrt(4 * math.pi) * np.stack(rows) * weights
    return torch.from_numpy(points), torch.from_numpy(harmonics)


# An axis is distinct if the larger of the two neighbouring variances is at least this multiple of the
# smaller one, and its standard error, in radians, is at most this number for independent atoms.
_RATIO, _STANDARD_ERROR = 1.5, 0.15


def distinct_axes(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""Find the principal axis of each cloud that differs most from the others in variance.

    This is the axis of the largest or of the smallest variance, such as that of a rod or of a disc.
    With :math:`\rho` the ratio of this variance to the next, or of the next to it, and
    :math:`n = 1 / \sum_i w_i^2` atoms, the standard error of the axis of independent normal atoms is
    :math:`\rho^{1/2} / (n^{1/2} (\rho - 1))` radians (Anderson 1963).

    Args:
        points: A ``C x n x d`` tensor of atoms, with ``d >= 2``.
        weights: A ``C x n`` tensor of weights that sum to one in each cloud.

    Returns:
        The axes, a ``C x d`` tensor of unit vectors without a direction, and a ``C`` mask of the
        clouds whose axis is distinct.
    """
    centred = points - weights.unsqueeze(-2) @ points
    values, vectors = torch.linalg.eigh((weights.unsqueeze(-1) * centred).mT @ centred)
    values = values.clamp_min(0)
    # A spread below rounding has no axis, and a variance below rounding is zero.
    floor = 100 * torch.finfo(points.dtype).eps * points.square().sum(-1).amax(-1, keepdim=True)
    values = values + floor
    ratios = torch.stack([values[:, 1] / values[:, 0], values[:, -1] / values[:, -2]])
    axes = torch.stack([vectors[..., 0], vectors[..., -1]])
    last = ratios[1] >= ratios[0]
    ratio = torch.where(last, ratios[1], ratios[0])
    size = 1 / weights.square().sum(-1)
    precise = size * (ratio - 1).square() >= ratio / _STANDARD_ERROR**2
    return torch.where(last.unsqueeze(-1), axes[1], axes[0]), precise & (ratio >= _RATIO)


def uniform_axes_p_value(axes: Tensor) -> float:
    r"""Test whether axes are uniform over all directions, by Bingham's test.

    With :math:`T` the mean of :math:`a a^\top` over ``C`` axes :math:`a`, the statistic

    .. math::
        \frac{C d (d + 2)}{2} \left( \mathrm{tr}(T^2) - \frac{1}{d} \right)

    is asymptotically chi-squared with :math:`(d - 1)(d + 2) / 2` degrees of freedom for uniform axes
    (Bingham 1974; Mardia and Jupp 2000, section 10.7.1). In the plane this is Rayleigh's test of the
    doubled angles.

    Args:
        axes: A ``C x d`` tensor of unit vectors.

    Returns:
        The p-value.
    """
    count, dim = axes.shape
    moments = axes.mT @ axes / count
    statistic = count * dim * (dim + 2) / 2 * (moments.square().sum().item() - 1 / dim)
    return float(scipy.stats.chi2.sf(statistic, (dim - 1) * (dim + 2) / 2))
