"""The base class of distances that multiply coordinates before another distance sees them."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from gp_distributions.distances import evaluation
from gp_distributions.distances.base import Distance
from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows, embedded, rows_of
from gp_distributions.distances.wrapper import DistanceWrapper


class MultipliedDistance(DistanceWrapper):
    r"""Base class of distances between distributions whose coordinates are multiplied by factors.

    .. math:: d_s(P, P') = d(S P, S P'), \qquad S = \operatorname{diag}(s_1, \dots, s_d).

    The means of Gaussians and mixtures are multiplied by ``S``, and their covariances become
    :math:`S \Sigma S`. A subclass defines :attr:`multipliers`.

    Args:
        distance: Distance that reads the multiplied coordinates.

    Raises:
        TypeError: If ``distance`` is not a :class:`Distance`.
        ValueError: If the atoms of the distance are labels or indices, which have no scale.
    """

    def __init__(self, distance: Distance) -> None:
        super().__init__(distance)
        if not distance.reads_coordinates:
            raise ValueError(
                f"Expected a distance that reads coordinates, got {type(distance).__name__}, whose "
                "atoms are labels or indices."
            )

    @property
    @abstractmethod
    def multipliers(self) -> Tensor:
        """The factor of each coordinate, of shape ``d``."""

    @property
    def _factors(self) -> Tensor:
        """Factors of the columns of an atom; for Gaussians also of the entries of the covariance."""
        factors = self.multipliers
        if self.inputs == "clouds":
            return factors
        return torch.cat([factors, torch.outer(factors, factors).flatten()])

    def represent_rows(self, rows: Tensor, factors: Tensor | None = None) -> Tensor:
        """Represent all rows as the distance does for multiplied coordinates."""
        own = self._factors.to(rows)
        return self.distance.represent_rows(rows, own if factors is None else own * factors)

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Represent clouds as the distance does for multiplied coordinates."""
        return self.distance.represent(points * self._factors.to(points), weights)

    def compare_all(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between all pairs of representations."""
        return self.distance.compare_all(r1, r2)

    def compare_paired(self, r1: Tensor, r2: Tensor) -> Tensor:
        """Compute the squared distances between corresponding representations, ``batch_shape x N``."""
        return self.distance.compare_paired(r1, r2)

    def squared_norms(self, rows: Rows) -> Tensor:
        """Compute squared distances to the origin of inner products of the distance."""
        evaluation.adapt(self, rows_of(rows))
        fixed = evaluation.settled(self)
        if any(each.requires_grad for each in (rows_of(rows), *fixed.parameters())):
            return self.distance.squared_norms(fixed._multiplied(rows_of(rows)))

        def norms() -> Tensor:
            # The distance represents these rows as this one represents those that it was given.
            multiplied = EmbeddedRows(fixed._multiplied(rows_of(rows)))
            known = evaluation.representations(self, rows)
            multiplied.derived("fixed", lambda: known, by=self.distance)
            return self.distance.squared_norms(multiplied).unsqueeze(-1)

        return embedded(rows).derived("norms", norms, by=self).squeeze(-1)

    def _multiplied(self, rows: Tensor) -> Tensor:
        """Return the rows that the distance reads."""
        return self.block.join(*self.block.split(rows), self._factors.to(rows))
