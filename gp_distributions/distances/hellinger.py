"""The Hellinger distance on a shared support."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_distributions.distances.shared_support import SharedSupportDistance


class Hellinger(SharedSupportDistance):
    r"""The Hellinger distance between weights on one support.

    .. math::
        d^2(P, P') = \frac{1}{2} \sum_s \left(\sqrt{w_s} - \sqrt{w'_s}\right)^2
        = 1 - \sum_s \sqrt{w_s w'_s},

    one minus the Bhattacharyya coefficient, between 0 and 1. The coordinates of the atoms are labels:
    how far two atoms lie apart does not matter, and gradients in them are zero. The gradient in a
    weight, infinite at weight 0, is set to 0 there. The origin of inner products is the measure
    zero, at squared distance 1/2 from all others: the ``"linear"`` profile is half the
    Bhattacharyya coefficient.

    Args:
        dim: The dimension ``d`` of the atoms.
        support: The ``S x d`` points that atoms can have, as a tensor or array; kept in
            lexicographic order, each once. Default: the atoms of the first clouds seen, which are the
            training clouds of a :class:`DistributionGP`; where all of them list the same atoms, as
            images do, also those without weight.

    Raises:
        ValueError: If ``support`` has another shape or is not finite; on evaluation, if an atom of
            positive weight is not in the support, or if the support is taken from clouds of which
            one shares no atom with any other.

    Source: Hein and Bousquet 2005.
    """

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        """Roots of half the weights on the support."""
        halves = self.masses(points, weights) / 2
        positive = halves > 0
        return torch.where(positive, torch.where(positive, halves, 1.0).sqrt(), 0.0)

    def squared_norms(self, rows: Tensor) -> Tensor:
        """Squared distances to the measure zero, 1/2: ``batch_shape x N``."""
        return rows.new_full(rows.shape[:-1], 0.5)
