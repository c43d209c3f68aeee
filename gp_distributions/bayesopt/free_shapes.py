"""Optimisation of an acquisition function over the atoms of clouds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from gp_distributions.bayesopt.proposing import climb, one_by_one
from gp_distributions.distances.base import Distance
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import Data, integer, real_array, to_tensors

Penalty = Callable[[Tensor], Tensor]


class DataPenalty(torch.nn.Module):
    r"""Penalise clouds that are farther from the data than neighbouring clouds of the data are apart.

    With :math:`r` the median distance from a cloud of the data to its nearest neighbour, the penalty is

    .. math::
        \max(0, \min_i d^2(P, P_i) / r^2 - 1).

    Args:
        distance: The distance :math:`d`; its parameters are not changed.
        data: The clouds :math:`P_i` to stay close to, at least two.

    Raises:
        ValueError: If there are fewer than two clouds, or most of them coincide with another.

    Example:
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> from gp_distributions.bayesopt import DataPenalty
        >>> data = PointClouds([[[0.0]], [[1.0]], [[2.0]]])  # three clouds of one atom
        >>> penalty = DataPenalty(SlicedWasserstein(1), data)
        >>> candidates = PointClouds([[[2.5]], [[4.0]]])  # at distances 0.5 and 2 from the nearest
        >>> penalty(candidates.pack().unsqueeze(-2)).tolist()
        [0.0, 3.0]
    """

    def __init__(self, distance: Distance, data: PointClouds) -> None:
        super().__init__()
        if not data.batch_shape or len(data) < 2:
            raise ValueError(f"Expected at least two clouds as data, got {data}.")
        self.distance = distance
        self.rows: Tensor
        self.scale: Tensor
        self.register_buffer("rows", data.pack().detach())
        with torch.no_grad():
            squared = distance.squared(self.rows).clone()
        nearest = squared.fill_diagonal_(torch.inf).amin(-1)
        self.register_buffer("scale", nearest.median())
        if not self.scale > 0:
            raise ValueError(
                "Expected training clouds most of which differ from all others. Remove duplicates."
            )

    def forward(self, X: Tensor) -> Tensor:
        """Returns the largest penalty among the ``q`` clouds of each batch element.

        Args:
            X: A ``batch_shape x q x m*(d+1)`` tensor of rows.

        Returns:
            A tensor of shape ``batch_shape``.
        """
        nearest = self.distance.squared(X, self.rows).amin(-1)
        return (nearest / self.scale - 1).clamp_min(0).amax(-1)


def optimize_free_shapes(
    acquisition: AcquisitionFunction,
    starts: PointClouds,
    bounds: Tensor,
    q: int = 1,
    *,
    penalty: Penalty | None = None,
    penalty_weight: float = 1.0,
    maxiter: int = 100,
) -> tuple[PointClouds, Tensor]:
    """Maximise an acquisition function over the atoms of clouds, with their weights fixed.

    L-BFGS-B maximises ``acquisition - penalty_weight * penalty`` from all starts in parallel. Several
    clouds are found one after the other, each with the previous ones as pending points.

    Args:
        acquisition: A BoTorch acquisition function of a model on rows. For ``q > 1`` it must support
            pending points, as Monte Carlo acquisition functions do.
        starts: The ``S`` clouds to start from, which should be real ones: for example, the best clouds
            so far and some random ones.
        bounds: A ``2 x d`` tensor with the smallest and the largest value of each coordinate. The atoms
            of the starts are clamped to these bounds.
        q: Number of clouds to find.
        penalty: A differentiable function that maps ``batch_shape x 1 x m*(d+1)`` rows to
            ``batch_shape`` values to subtract, for example a :class:`DataPenalty`. Without a penalty,
            shapes can move far away from the data, because acquisition functions reward uncertainty.
        penalty_weight: Factor of the penalty, in the units of the acquisition function.
        maxiter: Maximum number of iterations from each start.

    Returns:
        The ``q`` clouds, and the value of the penalised acquisition function at each when it was found.

    Raises:
        ValueError: If ``starts`` does not have exactly one batch axis or has normals, ``bounds`` does
            not match the dimension of the atoms, or ``q`` or ``maxiter`` is less than one.
        UnsupportedError: If the acquisition function is one-shot, or ``q > 1`` and it does not support
            pending points.

    Warns:
        OptimizationWarning: If L-BFGS-B stops early from some start, as it may where a penalty has a
            kink. The cloud that it reached is still a candidate for the result.

    Example:
        >>> import torch
        >>> from botorch.acquisition import PosteriorMean
        >>> from gp_distributions import DistributionGP, PointClouds, SlicedWassersteinKernel
        >>> from gp_distributions import optimize_free_shapes
        >>> generator = torch.Generator().manual_seed(0)
        >>> X = PointClouds(torch.rand(8, 3, 2, generator=generator, dtype=torch.float64))
        >>> model = DistributionGP(X, X.points.mean((-2, -1)), SlicedWassersteinKernel(2)).eval()
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> clouds, values = optimize_free_shapes(PosteriorMean(model), X[:2], bounds, maxiter=5)
        >>> tuple(clouds.points.shape), bool(values > model.predict(X[:2])[0].max())
        ((1, 3, 2), True)
    """
    if len(starts.batch_shape) != 1 or not len(starts):
        raise ValueError(f"Expected starts as S >= 1 clouds, got {starts}.")
    refuse_normals(starts)
    dim = starts.dim
    bounds = check_bounds(bounds, dim).to(starts.points)
    q, maxiter = integer(q, "q"), integer(maxiter, "maxiter")
    rows = starts.pack().detach()
    moving, limits = coordinates(rows, bounds)
    values: list[Tensor] = []

    def objective(rows: Tensor) -> Tensor:
        found = acquisition(rows)
        return found if penalty is None else found - penalty_weight * penalty(rows)

    def find(found: list[Tensor]) -> Tensor:
        reached, value = climb(objective, rows, moving, limits, maxiter)
        best = value.argmax()
        values.append(value[best])
        return reached[best].unsqueeze(0)

    found = torch.cat(one_by_one(acquisition, q, find, torch.cat))
    return PointClouds.unpack(found, dim), torch.stack(values)


def refuse_normals(starts: PointClouds) -> None:
    """Raise an error if starts have normals."""
    if starts.num_normals:
        raise ValueError(
            f"Expected starts without normals, which do not follow atoms that move, got {starts}. Use a "
            "model on PointClouds(clouds.positions, clouds.weights)."
        )


def coordinates(rows: Tensor, bounds: Tensor) -> tuple[list[int], Tensor]:
    """Return the columns of rows that hold coordinates, not weights, and their bounds."""
    dim, width = bounds.shape[-1], rows.shape[-1]
    moving = [column for column in range(width) if (column + 1) % (dim + 1)]
    return moving, bounds.repeat(1, width // (dim + 1))


def check_bounds(bounds: Data, dim: int | None = None) -> Tensor:
    """Returns bounds as a floating-point tensor.

    Args:
        bounds: A tensor, an array or nested lists.
        dim: Expected number of columns; ``None`` for any.

    Raises:
        ValueError: If ``bounds`` is not a ``2 x dim`` tensor of finite numbers, with each lower bound
            below the upper bound.
    """
    (bounds,) = to_tensors([real_array(bounds, "bounds")])
    if dim is None:
        dim = bounds.shape[-1] if bounds.dim() else 0
    valid = bounds.shape == (2, dim) and (bounds.isfinite() & (bounds[0] < bounds[1])).all()
    if not valid:
        raise ValueError(
            f"Expected bounds as a 2 x {dim} tensor of finite numbers, the lower ones below the upper "
            f"ones, got {bounds.tolist()}."
        )
    return bounds
