"""Squared distances as sums over coordinates: a stand-in that costs no evaluation of the clouds."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.embedded_rows import EmbeddedRows, Rows
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.rows.clouds import drop_copies

# Logarithm of a scale at which a coordinate does not count.
_NOTHING = -30.0


class AdditiveDistances:
    r"""The squared distances of scaled clouds, as sums over their coordinates.

    Let :math:`d_j` be a distance if only coordinate :math:`j` counts, with scale one. With scales
    :math:`s` the stand-in is

    .. math:: d_s^2(P, P') \approx \sum_j s_j^2\, d_j^2(P, P'),

    where coordinates that rotate together are one term. It is Hilbertian, too. The distances
    :math:`d_j` are computed once, so that scales can be tried out in the time of a sum of matrices.

    Args:
        distance: The distance whose ``forward`` it can replace.
    """

    def __init__(self, distance: ScaledDistance) -> None:
        self._distance = distance
        self._exact = distance.forward
        self._terms: tuple[EmbeddedRows, Tensor] | None = None

    def __call__(self, x1: Rows, x2: Rows | None = None, *, diag: bool = False) -> Tensor:
        """Return the squared distances within one set of clouds; others are exact."""
        within = x2 is None or x2 is x1
        if diag or not (within and isinstance(x1, EmbeddedRows)):
            return self._exact(x1, x2, diag=diag)
        if self._terms is None or self._terms[0] is not x1:
            self._terms = x1, self._computed(drop_copies(x1.rows))
        terms = self._terms[1]
        squares = self._distance.scales[-len(terms) :].square()
        squared = torch.tensordot(squares, terms, dims=1)
        return squared.expand(*x1.rows.shape[:-1], -1)

    @torch.no_grad()
    def _computed(self, rows: Tensor) -> Tensor:
        """Return the squared distances of each coordinate alone, for scale one."""
        raw = self._distance.raw_scales
        before, terms = raw.clone(), []
        for j in range(len(raw)):
            raw.fill_(_NOTHING)
            raw[j] = 0.0
            terms.append(self._exact(rows) / self._distance.scales[j - len(raw)].square())
        raw.copy_(before)
        return torch.stack(terms)
