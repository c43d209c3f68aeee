"""Random solids in three dimensions, in known or unknown pose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_KINDS = ("ellipsoid", "box", "torus", "dumb-bell")


@dataclass(frozen=True)
class Solids:
    r"""Solids given as points on or in them, with a target that does not depend on their pose.

    Attributes:
        kinds: Kind of each of the ``N`` solids: ``"ellipsoid"``, ``"box"``, ``"torus"`` or
            ``"dumb-bell"``.
        points: An ``N x n x 3`` array, each solid with its long axes along the coordinate axes.
        turned: The same points, each solid turned at random about its centre.
        targets: The ``N`` sums of elongation, flatness and kurtosis, that is,
            :math:`\log(s_1 / s_2) + \log(s_2 / s_3) / 2 + E|x|^4 / (E|x|^2)^2` with the standard
            deviations :math:`s` along the principal axes.
    """

    kinds: tuple[str, ...]
    points: NDArray[np.float64]
    turned: NDArray[np.float64]
    targets: NDArray[np.float64]


def random_solids(num: int, *, num_points: int = 400, seed: int = 0) -> Solids:
    """Draw ellipsoids, boxes, tori and dumb-bells in turn.

    Args:
        num: Number ``N`` of solids.
        num_points: Number ``n`` of points in each solid.
        seed: Random seed.

    Returns:
        The solids.
    """
    rng = np.random.default_rng(seed)
    kinds = tuple(_KINDS[i % len(_KINDS)] for i in range(num))
    points = np.stack([_drawn(kind, num_points, rng) for kind in kinds])
    points -= points.mean(axis=1, keepdims=True)
    rotations = np.stack([_rotation(rng) for _ in range(num)])
    spreads = np.sqrt(np.linalg.eigvalsh(np.einsum("nij,nik->njk", points, points) / num_points))
    squares = np.square(points).sum(-1)
    kurtosis = np.square(squares).mean(-1) / np.square(squares.mean(-1))
    ratios = np.log(spreads[:, 1:] / spreads[:, :-1])
    targets = ratios[:, 1] + ratios[:, 0] / 2 + kurtosis
    return Solids(kinds, points, points @ rotations.transpose(0, 2, 1), targets)


def _drawn(kind: str, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    axes = rng.uniform(0.4, 1.4, 3)
    normal = rng.standard_normal((count, 3))
    sphere: NDArray[np.float64] = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    if kind == "ellipsoid":
        return sphere * axes
    if kind == "box":
        return rng.uniform(-1, 1, (count, 3)) * axes
    if kind == "torus":
        angle, around = rng.uniform(0, 2 * np.pi, (2, count))
        tube = rng.uniform(0.15, 0.5)
        reach = 1 + tube * np.cos(around)
        ring = np.stack(
            [reach * np.cos(angle), reach * np.sin(angle), tube * np.sin(around)], axis=-1
        )
        return ring * axes
    sizes = rng.uniform(0.3, 0.9, 2)
    ball = (rng.uniform(size=count) < sizes[0] / sizes.sum()).astype(int)
    ends = np.array([-1.0, 1.0]) * rng.uniform(0.6, 1.6)
    return sphere * sizes[ball, None] + ends[ball, None] * np.array([1.0, 0.0, 0.0])


def _rotation(rng: np.random.Generator) -> NDArray[np.float64]:
    orthogonal, upper = np.linalg.qr(rng.standard_normal((3, 3)))
    orthogonal = orthogonal * np.sign(np.diagonal(upper))
    if np.linalg.det(orthogonal) < 0:
        orthogonal[:, 0] *= -1
    return np.asarray(orthogonal)
