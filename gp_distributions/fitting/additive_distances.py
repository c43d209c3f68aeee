"""Squared distances as sums over coordinates: a stand-in that costs no evaluation of the clouds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gp_distributions.distances.evaluation import Distance, looking_up
from gp_distributions.distances.scaled import ScaledDistance
from gp_distributions.rows.clouds import drop_copies

# Logarithm of a scale at which a coordinate does not count.
_NOTHING = -30.0


class AdditiveDistances:
    r"""A function to look up the squared distances of scaled clouds, as sums over their coordinates.

    Let :math:`d_j` be a distance if only coordinate :math:`j` counts, with scale one. With scales
    :math:`s` the stand-in is

    .. math:: d_s^2(P, P') \approx \sum_j s_j^2\, d_j^2(P, P'),

    where coordinates that rotate together are one term. It is Hilbertian, too. The distances
    :math:`d_j` are computed once, so that scales can be tried out in the time of a sum of matrices.

    Args:
        distances: The distances to replace, within :func:`looking_up`.
    """

    def __init__(self, distances: Sequence[ScaledDistance]) -> None:
        self._distances = list(distances)
        # The rows are kept, so that their ids are not reused.
        self._terms: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def __call__(self, distance: Distance, x1: Tensor, x2: Tensor, diag: bool) -> Tensor | None:
        """Return the squared distances within one set of clouds, or None for other distances."""
        number = next((i for i, own in enumerate(self._distances) if own is distance), None)
        rows = drop_copies(x1)
        if number is None or diag or x1 is not x2 or rows.dim() > 2:
            return None
        own, key = self._distances[number], (number, id(x1))
        if key not in self._terms:
            with looking_up(None):
                self._terms[key] = x1, _terms(own, rows)
        terms = self._terms[key][1]
        squares = own.scales[-len(terms) :].square()
        return (squares @ terms.flatten(1)).view(terms.shape[1:]).expand(*x1.shape[:-1], -1)


@torch.no_grad()
def _terms(distance: ScaledDistance, rows: Tensor) -> Tensor:
    """Return the squared distances of each coordinate alone, for scale one."""
    before = distance.raw_scales.clone()
    terms = []
    for j in range(len(before)):
        distance.raw_scales.fill_(_NOTHING)
        distance.raw_scales[j] = 0.0
        scale = distance.scales[j - len(before)]
        terms.append(distance.squared(rows) / scale.square())
    distance.raw_scales.copy_(before)
    return torch.stack(terms)
