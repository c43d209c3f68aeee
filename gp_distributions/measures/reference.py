"""The discrete measure that potentials and transport maps refer to."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import scipy
import torch
from torch import Tensor

from gp_distributions.measures.arrays import Data, check_type, integer
from gp_distributions.measures.point_clouds import PointClouds
from gp_distributions.numerics.directions import sphere_directions
from gp_distributions.numerics.entropic_transport import conditional_plan, transport_potentials
from gp_distributions.numerics.random_features import kmeans
from gp_distributions.warnings import ReferenceWarning, warn

Method = Literal["kmeans", "sample", "mean_shape", "ball", "sphere", "grid", "low_discrepancy"]

# Number of atoms that are drawn from the data and passed to the methods.
_POOLED = 10_000


class ReferenceMeasure(torch.nn.Module):
    r"""A discrete measure :math:`\sum_j b_j \delta(u_j)` with learnable atoms and weights.

    The parameters are dimensionless: ``raw_points`` holds the atoms relative to their mean at
    construction, in units of their spread, and ``log_weights`` holds the weights up to a softmax. They
    do not require gradients until they are to be learned, by :func:`gp_distributions.fit_reference` or
    after ``reference.requires_grad_()``.

    Args:
        points: An ``m x d`` tensor or array of the atoms :math:`u_j`.
        weights: ``m`` positive weights, which are divided by their sum. Default: equal weights.

    Raises:
        ValueError: If a coordinate is not finite, a weight is not positive, or the shapes are wrong.

    Example:
        >>> from gp_distributions import ReferenceMeasure
        >>> reference = ReferenceMeasure([[0.0, 0.0], [1.0, 2.0]], weights=[1.0, 3.0])
        >>> reference
        ReferenceMeasure(2 atoms, d=2)
        >>> reference.weights
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """

    def __init__(self, points: Data, weights: Data | None = None) -> None:
        super().__init__()
        clouds = PointClouds(points, weights)
        if clouds.batch_shape or not (clouds.weights > 0).all():
            raise ValueError(
                "Expected points of one reference, of shape (m, d), and positive weights, got points "
                f"of shape {tuple(clouds.points.shape)} and weights {clouds.weights.tolist()}."
            )
        points = clouds.points.detach()
        centre = points.mean(0)
        spread = (points - centre).square().mean().sqrt()
        scale = torch.where(spread > 0, spread, 1.0)
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.raw_points = torch.nn.Parameter((points - centre) / scale, requires_grad=False)
        self.log_weights = torch.nn.Parameter(clouds.weights.detach().log(), requires_grad=False)

    @classmethod
    def from_data(
        cls, X: PointClouds, size: int = 20, method: Method = "kmeans", seed: int = 0
    ) -> ReferenceMeasure:
        """Make a reference from training clouds.

        All methods except ``"kmeans"`` give the atoms equal weights:

        - ``"kmeans"``: the centres of k-means on the pooled atoms, each weighted by the mass of the
          atoms that are nearest to it.
        - ``"sample"``: pooled atoms drawn by weight.
        - ``"mean_shape"``: some steps from a cloud of ``size`` atoms towards the barycentre of the
          clouds under linear transport; for outlines and shapes.
        - ``"ball"``, ``"sphere"``: points spread evenly over a ball or sphere about the pooled mean,
          whose radius is one and a half times the root mean square distance from it. Points in the
          ball follow a low-discrepancy sequence.
        - ``"grid"``, ``"low_discrepancy"``: points in the bounding box of the pooled atoms. A grid
          has the largest number of points per axis that gives at most ``size`` points.

        Args:
            X: Training clouds.
            size: Number ``m`` of atoms.
            method: One of the methods above.
            seed: Random seed.

        Returns:
            The reference.

        Raises:
            TypeError: If ``X`` are not :class:`PointClouds`.
            ValueError: If ``size`` is not an integer >= 1 or the method is unknown.

        Warns:
            ReferenceWarning: If ``"kmeans"`` finds fewer than ``size`` clusters, for instance because
                there are few distinct atoms.

        Example:
            >>> import numpy as np
            >>> from gp_distributions import PointClouds, ReferenceMeasure
            >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(10, 30, 2)))
            >>> ReferenceMeasure.from_data(clouds, size=5)
            ReferenceMeasure(5 atoms, d=2)
            >>> ReferenceMeasure.from_data(clouds, size=10, method="grid")
            ReferenceMeasure(9 atoms, d=2)
        """
        check_type(X, PointClouds)
        count = integer(size, "size")
        if method not in get_args(Method):
            raise ValueError(
                f"There is no method {method!r}; choose from {', '.join(get_args(Method))}."
            )
        rng = np.random.default_rng(seed)
        weights = None
        if method == "mean_shape":
            points = _mean_shape(X, count, rng)
        else:
            pooled = _pooled(X, max(count, _POOLED), rng)
            if method == "kmeans":
                points, weights = _kmeans(pooled.double(), count, rng)
            elif method == "sample":
                points = pooled[:count]
            else:
                points = _placed(pooled, count, method, rng)
        return cls(points.to(X.points), None if weights is None else weights.to(X.points))

    @property
    def points(self) -> Tensor:
        """Atoms, of shape ``m x d``."""
        return self.centre + self.scale * self.raw_points

    @property
    def weights(self) -> Tensor:
        """Weights of the ``m`` atoms, which sum to one."""
        return self.log_weights.softmax(-1)

    @property
    def size(self) -> int:
        """Number ``m`` of atoms."""
        return self.raw_points.shape[0]

    @property
    def dim(self) -> int:
        """Dimension ``d`` of the atoms."""
        return self.raw_points.shape[1]

    def extra_repr(self) -> str:
        """Return the size and the dimension, for printing."""
        return f"{self.size} atoms, d={self.dim}"


def _pooled(X: PointClouds, count: int, rng: np.random.Generator) -> Tensor:
    """Draw atoms by weight from the average of all clouds, in which each cloud counts once."""
    weights = X.weights.detach().flatten().cpu().numpy()
    points = X.points.detach().flatten(0, -2).cpu()
    return points[rng.choice(len(weights), size=count, p=weights / weights.sum())]


def _kmeans(pooled: Tensor, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return the centres of the non-empty clusters, and the number of atoms in each."""
    centres, sizes = kmeans(pooled.numpy(), size, rng, steps=30)
    used = sizes > 0
    found = int(used.sum())
    if found < size:
        warn(
            f"Expected {size} clusters of atoms, found {found}: the clouds have few distinct atoms. "
            f"The reference has {found} atoms; use a smaller size or another method.",
            ReferenceWarning,
        )
    return torch.from_numpy(centres[used]), torch.from_numpy(sizes[used])


def _mean_shape(X: PointClouds, size: int, rng: np.random.Generator) -> Tensor:
    points = X.points.detach().double().reshape(-1, *X.points.shape[-2:])
    weights = X.weights.detach().double().reshape(points.shape[:-1])
    start = PointClouds._unchecked(points, weights)[int(rng.integers(len(points)))]
    support = start.resample(size, seed=int(rng.integers(2**31))).points
    # Atoms that coincide at the start would never separate.
    spread = (support - support.mean(0)).square().sum(-1).mean()
    noise = torch.from_numpy(rng.normal(size=support.shape)).to(support)
    support = support + 1e-3 * spread.sqrt() * noise
    masses = support.new_full((size,), 1 / size)
    for _ in range(10):
        epsilon = 0.01 * 2 * (support - support.mean(0)).square().sum(-1).mean()
        if epsilon == 0:  # all atoms coincide, so the barycentre is the mean
            return (weights.unsqueeze(-2) @ points).mean(0).expand(size, -1)
        potentials, _ = transport_potentials(
            points, weights, support, masses, epsilon, tolerance=1e-6
        )
        conditional = conditional_plan(points, support, masses, epsilon, potentials)
        plan = weights.unsqueeze(-1) * conditional
        support = ((plan.transpose(-1, -2) @ points) / masses.unsqueeze(-1)).mean(0)
    return support


def _placed(pooled: Tensor, size: int, method: Method, rng: np.random.Generator) -> Tensor:
    """Place points in a ball, on a sphere or in a box whose position and size the atoms determine."""
    dim = pooled.shape[1]
    if method == "grid":
        count = int(np.floor(size ** (1 / dim) + 1e-9))
        axis = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        units = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    elif method == "sphere":
        half = sphere_directions(dim, -(-size // 2), seed=int(rng.integers(2**31)))
        units = torch.cat([half, -half])[:size]
    else:
        sequence = scipy.stats.qmc.Sobol(dim + (method == "ball"), rng=rng)
        units = torch.from_numpy(sequence.random_base2((size - 1).bit_length())[:size])
    if method == "ball":
        normal = torch.special.ndtri(units[:, :dim].clamp(1e-9, 1 - 1e-9))
        radii = units[:, dim:] ** (1 / dim)
        units = normal / normal.norm(dim=-1, keepdim=True) * radii
    if method in ("grid", "low_discrepancy"):
        low, high = pooled.amin(0), pooled.amax(0)
        return low + (high - low) * units.to(pooled)
    mean = pooled.mean(0)
    radius = 1.5 * (pooled - mean).square().sum(-1).mean().sqrt()
    return mean + radius * units.to(pooled)
