"""The discrete measure that potentials and transport maps refer to."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from scipy.stats import qmc
from torch import Tensor

from gp_distributions.measures.arrays import Data
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.directions import sphere_directions
from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials
from gp_distributions.warnings import ReferenceWarning

Method = Literal["kmeans", "sample", "mean_shape", "ball", "sphere", "grid", "low_discrepancy"]

# Atoms of the data on which an initialiser works.
_MAX_POOLED = 10_000


class ReferenceMeasure(torch.nn.Module):
    r"""A discrete measure :math:`\sum_j b_j \delta(u_j)` whose atoms and weights can be learned.

    What is learned has no unit: the parameter ``raw_points`` holds the atoms in units of their
    spread at construction, about their mean, and ``log_weights`` the weights through a softmax.
    Neither requires a gradient until something is to be learned:
    :func:`gp_distributions.fit_reference` does that, or ``reference.requires_grad_()``.

    Args:
        points: An ``m x d`` tensor or array, the atoms :math:`u_j`.
        weights: ``m`` positive weights, which are divided by their sum. Default: equal weights.

    Raises:
        ValueError: If a coordinate is not finite, a weight is not positive, or shapes do not fit.
    """

    def __init__(self, points: Data, weights: Data | None = None) -> None:
        super().__init__()
        clouds = PointClouds(points, weights)
        if clouds.batch_shape:
            raise ValueError(
                "Expected the points of one reference, of shape (m, d), got shape "
                f"{tuple(clouds.points.shape)}."
            )
        if not bool((clouds.weights > 0).all()):
            first = int((clouds.weights <= 0).nonzero()[0])
            raise ValueError(f"Expected positive weights, got 0 for atom {first}: leave it out.")
        points = clouds.points.detach()
        centre = points.mean(0)
        spread = (points - centre).square().mean().sqrt()
        scale = torch.where(spread > 0, spread, 1.0)
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.raw_points = torch.nn.Parameter((points - centre) / scale, requires_grad=False)
        self.log_weights = torch.nn.Parameter(
            clouds.weights.detach().log().clone(), requires_grad=False
        )

    @classmethod
    def from_data(
        cls,
        X: PointClouds,
        size: int = 20,
        method: Method = "kmeans",
        seed: int = 0,
    ) -> ReferenceMeasure:
        """Place a reference by the training clouds: never by the batch at hand.

        Methods, with equal weights but where said:

        - ``"kmeans"``: centres of the pooled atoms, weighted by the mass nearest to each.
        - ``"sample"``: pooled atoms drawn by weight.
        - ``"mean_shape"``: some steps towards the barycentre of the clouds under linear transport,
          from a cloud of ``size`` atoms; for outlines and shapes.
        - ``"ball"``, ``"sphere"``: centred at the pooled mean, the radius one and a half times the
          root mean square distance from it; evenly spread, the ball's by a low-discrepancy sequence.
        - ``"grid"``, ``"low_discrepancy"``: in the box of the pooled atoms; a grid has the largest
          number of points per axis that makes at most ``size``.

        Args:
            X: The training clouds.
            size: The number ``m`` of atoms.
            method: One of those above.
            seed: Of the random draws.

        Returns:
            The reference.

        Raises:
            ValueError: If ``size`` is less than one or the method unknown.

        Warns:
            ReferenceWarning: If ``"kmeans"`` finds fewer clusters, as among few distinct atoms.
        """
        if size < 1:
            raise ValueError(f"Expected size >= 1, got {size}.")
        if method not in _METHODS:
            raise ValueError(f"There is no method {method!r}; choose from {', '.join(_METHODS)}.")
        rng = np.random.default_rng(seed)
        points, weights = _METHODS[method](X, size, rng)
        return cls(points.to(X.points), None if weights is None else weights.to(X.points))

    @property
    def points(self) -> Tensor:
        """The atoms, ``m x d``."""
        return self.centre + self.scale * self.raw_points

    @property
    def weights(self) -> Tensor:
        """The ``m`` weights, of sum one."""
        return self.log_weights.softmax(-1)

    @property
    def size(self) -> int:
        """The number ``m`` of atoms."""
        return self.raw_points.shape[0]

    @property
    def dim(self) -> int:
        """The dimension ``d`` of the atoms."""
        return self.raw_points.shape[1]

    def extra_repr(self) -> str:
        """The size, for printing."""
        return f"{self.size} atoms, d={self.dim}"


def _pooled(X: PointClouds, rng: np.random.Generator, size: int = _MAX_POOLED) -> Tensor:
    """Atoms of all clouds drawn by weight, each cloud counted once."""
    weights = X.weights.detach().flatten().cpu().numpy()
    points = X.points.detach().flatten(0, -2).cpu()
    return points[rng.choice(len(weights), size=size, p=weights / weights.sum())]


def _sample(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, None]:
    return _pooled(X, rng, size), None


def _kmeans(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    pooled = _pooled(X, rng).double().numpy()
    clusters = min(size, len(np.unique(pooled, axis=0)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        centres, nearest = kmeans2(pooled, clusters, iter=30, minit="++", seed=rng, missing="warn")
    mass = np.bincount(nearest, minlength=clusters)
    used = mass > 0
    if used.sum() < size:
        warnings.warn(
            f"Expected {size} clusters of atoms, found {used.sum()}, which the reference has: the "
            "clouds have few distinct atoms. Give a smaller size, or another method.",
            ReferenceWarning,
            stacklevel=3,
        )
    return torch.from_numpy(centres[used]), torch.from_numpy(mass[used].astype(float))


def _mean_shape(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, None]:
    clouds = X.to(dtype=torch.float64)
    points, weights = clouds.points.flatten(0, -3), clouds.weights.flatten(0, -2)
    start = clouds[int(rng.integers(len(clouds)))].resample(size, seed=int(rng.integers(2**31)))
    support = start.points.detach()
    # Coincident draws would stay together for ever.
    spread = (support - support.mean(0)).square().sum(-1).mean()
    support = support + 1e-3 * spread.sqrt() * torch.from_numpy(rng.normal(size=support.shape)).to(
        support
    )
    masses = torch.full((size,), 1 / size, dtype=support.dtype, device=support.device)
    for _ in range(10):
        epsilon = 0.01 * 2 * (support - support.mean(0)).square().sum(-1).mean()
        potentials, _ = transport_potentials(
            points, weights, support, masses, epsilon, tolerance=1e-6
        )
        conditional = conditional_plan(points, support, masses, epsilon, potentials)
        plan = weights.unsqueeze(-1) * conditional
        support = ((plan.transpose(-1, -2) @ points) / masses.unsqueeze(-1)).mean(0)
    return support, None


def _ball(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, None]:
    pooled = _pooled(X, rng)
    dim = pooled.shape[1]
    uniform = torch.from_numpy(qmc.Sobol(dim + 1, rng=rng).random(_power_of_two(size))[:size])
    normal = torch.special.ndtri(uniform[:, :dim].clamp(1e-9, 1 - 1e-9))
    units = normal / normal.norm(dim=-1, keepdim=True)
    return _placed(pooled, units * uniform[:, dim:] ** (1 / dim)), None


def _sphere(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, None]:
    pooled = _pooled(X, rng)
    half = sphere_directions(pooled.shape[1], -(-size // 2), seed=int(rng.integers(2**31)))
    return _placed(pooled, torch.cat([half, -half])[:size]), None


def _placed(pooled: Tensor, units: Tensor) -> Tensor:
    mean = pooled.mean(0)
    radius = 1.5 * (pooled - mean).square().sum(-1).mean().sqrt()
    return mean + radius * units.to(pooled)


def _grid(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, None]:
    pooled = _pooled(X, rng)
    dim = pooled.shape[1]
    count = int(np.floor(size ** (1 / dim) + 1e-9))
    axis = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return _in_box(pooled, torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)), None


def _low_discrepancy(X: PointClouds, size: int, rng: np.random.Generator) -> tuple[Tensor, None]:
    pooled = _pooled(X, rng)
    draws = qmc.Sobol(pooled.shape[1], rng=rng).random(_power_of_two(size))[:size]
    return _in_box(pooled, torch.from_numpy(draws)), None


def _in_box(pooled: Tensor, units: Tensor) -> Tensor:
    low, high = pooled.amin(0), pooled.amax(0)
    return low + (high - low) * units.to(pooled)


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


_METHODS = {
    "kmeans": _kmeans,
    "sample": _sample,
    "mean_shape": _mean_shape,
    "ball": _ball,
    "sphere": _sphere,
    "grid": _grid,
    "low_discrepancy": _low_discrepancy,
}
