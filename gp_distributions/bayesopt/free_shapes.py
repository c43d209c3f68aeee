"""Clouds whose atoms themselves are moved to where an acquisition function is largest."""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.acquisition.penalized import PenalizedAcquisitionFunction
from botorch.exceptions import UnsupportedError
from botorch.generation import gen_candidates_scipy
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.measures import PointClouds
from gp_distributions.rows.clouds import split_rows

Penalty = Callable[[Tensor], Tensor]


class DataPenalty(torch.nn.Module):
    r"""How far clouds are from all clouds of the data, beyond what is usual among these.

    With :math:`r` the median distance from a cloud of the data to the nearest other one,

    .. math::
        \max(0, \min_i d^2(P, P_i) / r^2 - 1).

    Args:
        distance: A distance; its parameters are taken as they are.
        data: The clouds to stay near to, at least two.

    Raises:
        ValueError: If there are fewer than two clouds, or most of them coincide.
    """

    def __init__(self, distance: Distance, data: PointClouds) -> None:
        super().__init__()
        if not data.batch_shape or len(data) < 2:
            raise ValueError(f"Expected two clouds or more as data, got {data}.")
        self.distance = distance
        self.rows: Tensor
        self.scale: Tensor
        self.register_buffer("rows", data.pack().detach())
        with torch.no_grad():
            squared = distance.squared(self.rows).clone()
        nearest = squared.fill_diagonal_(torch.inf).amin(-1)
        self.register_buffer("scale", nearest.median())
        if not bool(self.scale > 0):
            raise ValueError("Most clouds of the data coincide with another: leave out copies.")

    def forward(self, X: Tensor) -> Tensor:
        """The largest penalty of the ``q`` clouds of each t-batch.

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
    """Move the atoms of clouds to where an acquisition function is largest, their weights fixed.

    L-BFGS-B from every start, in parallel, on ``acquisition - penalty_weight * penalty``. Several clouds
    are found one after the other, each with those before it as pending points.

    Args:
        acquisition: A BoTorch acquisition function of a model on rows; for ``q > 1`` one that takes
            pending points, as the Monte Carlo ones do.
        starts: The ``S`` clouds to start from: real ones, such as the best and others at random.
        bounds: A ``2 x d`` tensor, the smallest and the largest value of each coordinate. Starts are
            moved into it.
        q: The number of clouds wanted.
        penalty: A differentiable function of ``batch_shape x 1 x m*(d+1)`` rows that returns
            ``batch_shape`` values to be subtracted, for example a :class:`DataPenalty`. An acquisition
            function grows with uncertainty, so that without one a shape can leave everything known.
        penalty_weight: Its factor, in the units of the acquisition function.
        maxiter: Iterations from each start.

    Returns:
        The ``q`` clouds, and the values that the objective had for each.

    Raises:
        ValueError: If starts have batch axes other than one, ``bounds`` does not fit their dimension,
            or a number is less than one.
        UnsupportedError: If the acquisition function is a one-shot one, or takes no pending points.
    """
    if isinstance(acquisition, OneShotAcquisitionFunction):
        raise UnsupportedError(
            "A one-shot acquisition function needs clouds for its fantasies too."
        )
    if len(starts.batch_shape) != 1 or not len(starts):
        raise ValueError(f"Expected S >= 1 clouds to start from, got {starts}.")
    dim = starts.dim
    lower, upper = check_bounds(bounds, dim).to(starts.points)
    for name, number in (("q", q), ("maxiter", maxiter)):
        if number < 1:
            raise ValueError(f"Expected {name} >= 1, got {number}.")
    objective = acquisition
    if penalty is not None:
        objective = PenalizedAcquisitionFunction(acquisition, penalty, penalty_weight)
    count = starts.weights.shape[-1]
    weights = starts.weights.detach()
    # A coordinate and then a weight for each atom, as in rows; BoTorch keeps fixed columns apart.
    fixed = {j * (dim + 1) + dim: weights[:, j, None] for j in range(count)}
    inside = PointClouds(starts.points.detach().clamp(lower, upper), weights)
    lower, upper = (torch.nn.functional.pad(b, (0, 1)).repeat(count) for b in (lower, upper))
    before = getattr(acquisition, "X_pending", None)
    found: list[Tensor] = []
    values: list[Tensor] = []
    try:
        for _ in range(q):
            rows, value = gen_candidates_scipy(
                inside.pack().unsqueeze(-2),
                objective,
                lower_bounds=lower,
                upper_bounds=upper,
                options={"maxiter": maxiter},
                fixed_features=fixed,
                use_parallel_mode=True,
            )
            best = int(value.argmax())
            found.append(rows[best].detach())
            values.append(value[best].detach())
            if len(found) < q:
                pending = torch.cat(found if before is None else [before, *found])
                acquisition.set_X_pending(pending)
    finally:
        if q > 1:
            acquisition.set_X_pending(before)
    points, masses = split_rows(torch.cat(found), dim)
    return PointClouds(points, masses), torch.stack(values)


def check_bounds(bounds: Tensor, dim: int) -> Tensor:
    """Bounds as floating point, if they are ``2 x dim`` finite numbers with lower < upper.

    Raises:
        ValueError: If not.
    """
    if bounds.shape != (2, dim) or not bool(
        (bounds[0] < bounds[1]).all() & bounds.isfinite().all()
    ):
        raise ValueError(
            f"Expected bounds as a 2 x {dim} tensor of finite numbers, the lower ones below the upper "
            f"ones, got {bounds.tolist()}."
        )
    return bounds if bounds.is_floating_point() else bounds.double()
