"""A distance between distributions whose coordinates have learnable scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gpytorch
import torch
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import Positive
from gpytorch.priors import LogNormalPrior, Prior
from torch import Tensor

from gp_distributions.distances.base import Distance
from gp_distributions.distances.multiplied import MultipliedDistance

# Standard deviation of the logarithms of the scales under the default prior.
_SPREAD = math.sqrt(3.0)


class ScaledDistance(MultipliedDistance, gpytorch.Module):
    r"""A distance with a learnable scale for each coordinate, which tells which coordinates matter.

    Coordinates are multiplied by positive scales :math:`s_1, \dots, s_d` before the distance sees them:

    .. math:: d_s(P, P') = d(S P, S P'), \qquad S = \operatorname{diag}(s_1, \dots, s_d), \qquad
        \frac{1}{d} \sum_j s_j^2 = 1.

    A scale close to zero means that the coordinate does not matter. The scales are relative: their mean
    square is one, because the lengthscale of the kernel is the overall scale. For Gaussians and
    mixtures, means and covariances are scaled. The distance keeps its properties: ``embed``, and
    positive definiteness with every profile.

    Scales are one at construction. :func:`fit` learns them by marginal likelihood, with a guard against
    overfitting, if they require a gradient, as they do by default;
    ``distance.raw_scales.requires_grad_(False)`` fixes them. Coordinates in different units should be
    standardised first, ``ScaledDistance(StandardizedDistance(distance))``, so that scales can be
    compared. Intervals are too narrow if scales are learned from few clouds;
    :func:`integrate_hyperparameters` of the fitted model keeps the scales and makes intervals wider.

    Around :class:`RigidSlicedWasserstein`, all coordinates that rotate have one scale, all normals have
    one, and each mark has its own. A reference measure is not scaled with the clouds.

    Args:
        distance: Distance that reads the scaled coordinates.
        scales_prior: Prior of the scales before they are normalised. The default,
            ``LogNormalPrior(0, sqrt(3))``, shrinks all scales to one; ``None`` sets no prior.

    Attributes:
        decision: Whether the last fit changed the scales, and why, in words.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the atoms of the distance are labels or indices, which have no scale.

    Example:
        >>> from gp_distributions import PointClouds, ScaledDistance, SlicedWasserstein
        >>> rows = PointClouds.from_list([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]).pack()
        >>> distance = ScaledDistance(SlicedWasserstein(2))
        >>> distance.scales = [3.0, 1.0]
        >>> distance.scales.detach().square()
        tensor([1.8000, 0.2000], dtype=torch.float64)
        >>> distance.squared(rows[:1], rows).detach().round(decimals=6)
        tensor([[0.0000, 0.9000, 0.1000]], dtype=torch.float64)

    Source: Neal 1996, section 1.2.3 (automatic relevance determination).
    """

    decision: str = "scales not learned"
    raw_scales: torch.nn.Parameter
    raw_scales_constraint: Positive

    def __init__(
        self, distance: Distance, *, scales_prior: Prior | _DefaultType | None = DEFAULT
    ) -> None:
        super().__init__(distance)
        size = len(self._groups)
        # A single scale is always one: there is nothing to learn.
        raw = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64), requires_grad=size > 1)
        self.register_parameter("raw_scales", raw)
        module: Any = self  # GPyTorch has no types
        module.register_constraint("raw_scales", Positive(torch.exp, torch.log))
        if isinstance(scales_prior, _DefaultType):
            scales_prior = LogNormalPrior(0.0, _SPREAD)
        if scales_prior is not None:
            module.register_prior("scales_prior", scales_prior, _for_prior, _set_scales)

    # GPyTorch's __call__ would not call forward hooks.
    __call__ = torch.nn.Module.__call__

    @property
    def multipliers(self) -> Tensor:
        """The scale of each coordinate, of shape ``d``."""
        return self.scales

    @property
    def scales(self) -> Tensor:
        """The scale of each coordinate, of shape ``d``, with mean square one.

        They can be set to ``d`` positive numbers, of which only the ratios matter.
        """
        values = _positive(self)
        return self._spread(values / self._size(values))

    @scales.setter
    def scales(self, values: Tensor | Sequence[float]) -> None:
        raw = self.raw_scales
        given = torch.as_tensor(values, dtype=raw.dtype, device=raw.device).expand(self.dim)
        own = torch.stack([group[0] for group in given.split(self._groups)])
        alike = torch.equal(self._spread(own), given)
        if not bool(((given > 0) & given.isfinite()).all()) or not alike:
            raise ValueError(
                "Expected positive, finite scales, equal for coordinates that rotate together, got "
                f"{given.tolist()}."
            )
        _set_scales(self, own / self._size(own))

    def _size(self, values: Tensor) -> Tensor:
        """Return the root mean square over coordinates."""
        return self._spread(values).square().mean().sqrt()

    def _spread(self, values: Tensor) -> Tensor:
        """Return the value of each coordinate, given those of the groups."""
        return values.repeat_interleave(torch.tensor(self._groups, device=values.device))

    @property
    def _groups(self) -> list[int]:
        """Numbers of successive coordinates that share a scale."""
        return [*self.rotating, *[1] * (self.dim - sum(self.rotating))]

    def extra_repr(self) -> str:
        """Return the scales and the decision of the last fit, for printing."""
        return f"scales={[round(scale, 3) for scale in self.scales.tolist()]}, {self.decision}"


def _positive(distance: ScaledDistance) -> Tensor:
    """Return the scales before they are normalised."""
    values: Tensor = distance.raw_scales_constraint.transform(distance.raw_scales)
    return values


def _for_prior(distance: ScaledDistance) -> Tensor:
    """Return these scales with axes over which GPyTorch sums the prior, for any batch of models."""
    return _positive(distance)[None, None]


def _set_scales(distance: Any, values: Any) -> None:
    values = torch.as_tensor(values).to(distance.raw_scales).flatten()
    distance.initialize(raw_scales=distance.raw_scales_constraint.inverse_transform(values))
