"""A distance between bags that also sees how many atoms they have."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from gp_distributions.distances import evaluation
from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import EmbeddedRows
from gp_distributions.distances.wrapper import DistanceWrapper
from gp_distributions.measures.arrays import positive
from gp_distributions.numerics.effective_sizes import effective_sizes
from gp_distributions.rows.clouds import drop_copies

# Largest number of clouds from which the unit of sizes is computed, evenly spaced in the data.
_CLOUDS = 256


class SizedDistance(DistanceWrapper):
    r"""A distance between clouds plus the difference of their log sizes.

    With the effective sizes :math:`n`, in which equal atoms count as one (Kish 1965),

    .. math:: d_n^2(P, P') = d^2(P, P') + c^2 \, (\log n - \log n')^2.

    The unit :math:`c` is such that, over the first clouds that the distance sees, usually the training
    clouds, the second term is on average the square of ``factor`` times the first. Larger schools,
    states or molecules are often of another kind; where sizes say nothing, a small factor does little
    harm.

    It is part of the default distance of bags of unlike sizes.

    Args:
        distance: Distance that reads clouds.
        factor: Deviation of the log sizes, relative to that of the clouds.

    Attributes:
        unit: The unit :math:`c` for a factor of one. NaN until the distance has seen clouds, and zero if
            all have one size.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the distance does not read clouds, or ``factor`` is not positive and finite.

    Example:
        >>> from gp_distributions import PointClouds, SlicedWasserstein
        >>> from gp_distributions.distances import SizedDistance
        >>> rows = PointClouds.from_list([[[0.0], [2.0]], [[0.0], [1.0], [2.0]], [[3.0], [4.0]]]).pack()
        >>> distance = SizedDistance(SlicedWasserstein(1), factor=0.5)
        >>> distance.adapt(rows)
        >>> apart = distance.squared(rows) - distance.distance.squared(rows)
        >>> (apart.sum() / distance.distance.squared(rows).sum()).round(decimals=6)
        tensor(0.2500, dtype=torch.float64)
    """

    supported_inputs: ClassVar[tuple[str, ...]] = ("clouds",)
    unit: Tensor

    def __init__(self, distance: Distance, *, factor: float = 0.3) -> None:
        super().__init__(distance)
        self.factor = positive(factor, "factor")
        self.register_buffer("unit", torch.tensor(math.nan, dtype=torch.float64))

    @torch.no_grad()
    def adapt(self, rows: Tensor) -> None:
        """Choose the settings of the distance, and the unit, if they are not known yet."""
        super().adapt(rows)
        if not rows.numel() or not bool(self.unit.isnan()):
            return
        rows = drop_copies(rows).flatten(0, -2)
        rows = rows[:: -(-len(rows) // _CLOUDS)]
        sizes = evaluation.represent_rows(self, rows, by=_log_sizes).squeeze(-1)
        spread = (sizes.unsqueeze(-1) - sizes).square().sum()
        # Not by ``squared``, after which the distance would remember the rows.
        ratio = self.distance(EmbeddedRows(rows)).sum() / spread
        self.unit.copy_(torch.where(spread > 0, ratio.sqrt(), 0.0))

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows as the distance does, with their log sizes at the end."""
        sizes = evaluation.represent_rows(self, rows, by=self._sizes)
        return torch.cat([self.distance.represent_rows(rows, factors), sizes], dim=-1)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent clouds as the distance does, with their log sizes at the end."""
        sizes = self._sizes(points, weights)
        return torch.cat([self.distance.represent(points, weights), sizes], dim=-1)

    def _sizes(self, points: Tensor, weights: Tensor) -> Tensor:
        """Return log sizes in their unit, ``C x 1``."""
        return self.factor * self.unit.to(points) * _log_sizes(points, weights)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations."""
        if self.euclidean:
            return super().compare_all(r1, r2)
        first = r1[..., :-1]
        found = self.distance.compare_all(first, first if r2 is r1 else r2[..., :-1])
        return found + (r1[..., -1:] - r2[..., -1:].mT).square()

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations, ``batch_shape x N``."""
        found = self.distance.compare_paired(r1[..., :-1], r2[..., :-1])
        return found + (r1[..., -1] - r2[..., -1]).square()

    def extra_repr(self) -> str:
        """Return the settings, for printing."""
        return f"factor={self.factor:g}"


def _log_sizes(points: Tensor, weights: Tensor) -> Tensor:
    """Return the logarithms of effective sizes, ``C x 1``."""
    return effective_sizes(points, weights).log().unsqueeze(-1)
